"""`labkit grade`: right and wrong answers, and notebooks that do harm or cheat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest

from labkit.teaching import sandbox
from tests.support import homes
from tests.support.homes import SOLUTION, STUB, hand_in, notebook
from tests.support.others import NOBODY, as_nobody, as_root, reachable

LABKIT = Path(sysconfig.get_path("scripts")) / "labkit"
WRONG = {"00-3": "goes down", "00-2": SOLUTION}

#: Who hands in what, how many of the four exercises count, and what a note has to say.
CLASS: dict[str, tuple[dict[str, Any], int, str]] = {
    "right": ({"answers": SOLUTION}, 4, ""),
    "no_checks": ({"answers": homes.OTHER, "checks": False}, 4, ""),
    "wrong": ({"answers": WRONG}, 1, ""),
    "endless": ({"answers": SOLUTION, "extra": {"00-2": homes.ENDLESS}}, 4, "interrupted"),
    "deletes": ({"answers": SOLUTION, "extra": {"00-3": homes.DELETES}}, 4, ""),
    "fakes_check": ({"answers": STUB, "extra": {"00-1": homes.FAKES_CHECK}}, 0, ""),
    "fakes_trial": ({"answers": WRONG, "extra": {"00-2": homes.FAKES_TRIAL}}, 0, ""),
    "copies": ({"answers": STUB, "extra": {"00-1": homes.COPIES}}, 0, ""),
    "eats": ({"answers": SOLUTION, "extra": {"00-4": homes.EATS}}, 4, ""),
    "leaves": ({"answers": SOLUTION, "extra": {"00-1": homes.LEAVES}}, 4, ""),
}


def grade(*arguments: object, **keywords: Any) -> subprocess.CompletedProcess[str]:
    command = [str(LABKIT), "grade", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **keywords)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what is said of a class, which is graded once, and what was found beside it."""
    folder = tmp_path_factory.mktemp("class")
    for name, (given, _, _) in CLASS.items():
        hand_in(folder / "homes" / name, nb00=notebook("00", short=True, **given))
    (progress := folder / "homes" / "wrong" / "work" / "notebooks" / "progress.json").write_text(
        json.dumps({"version": 1, "exercises": {"00-1": {"passed": True}}})
    )
    before = tree(folder)
    junit = folder / "junit.xml"
    options = ["--json", "--junit", junit, "--timeout", 10, "--memory", 3, "--jobs", 3]
    done = grade(folder / "homes", *options, timeout=3000)
    assert done.stdout, done.stderr
    assert progress.exists()
    said = {home["home"]: home["notebooks"][0] for home in json.loads(done.stdout)["homes"]}
    suites = ElementTree.parse(junit).getroot()
    junit.unlink()
    same = tree(folder) == before
    return {"said": said, "code": done.returncode, "same": same, "suites": suites}


def tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASS)
def test_only_what_an_answer_gives_in_the_run_counts(graded: dict[str, Any], name: str) -> None:
    said, (_, passed, note) = graded["said"][name], CLASS[name]
    assert said["passed"] == passed, said
    assert note in " ".join(said["notes"])
    assert said["memory_mib"] > 0


@pytest.mark.slow
def test_a_wrong_answer_is_named(graded: dict[str, Any]) -> None:
    exercises = graded["said"]["wrong"]["exercises"]
    assert exercises["00-3"]["sentence"].startswith("That is the neighbour on the other side")
    assert exercises["00-2"]["passed"]


@pytest.mark.slow
def test_a_class_leaves_nothing_behind(graded: dict[str, Any]) -> None:
    assert graded["code"] == 1
    assert graded["same"], "a file of a learner has changed"
    lines = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if line[:1] == ["sleep"] and line[1:] in homes.LEFT]


@pytest.mark.slow
def test_junit_says_the_same(graded: dict[str, Any]) -> None:
    for suite in graded["suites"]:
        open_ones = 4 - graded["said"][suite.get("name")]["passed"]
        assert (suite.get("tests"), suite.get("failures")) == ("4", str(open_ones))


# -- one notebook ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_solved_notebook_ends_with_0(tmp_path: Path) -> None:
    hand_in(tmp_path / "ada", nb00=notebook("00", short=True))
    (path,) = (tmp_path / "ada").rglob("*.ipynb")
    done = grade(path, timeout=600)
    assert (done.returncode, done.stdout) == (0, "work  00: 4/4\n"), done.stderr


def test_an_untouched_notebook_is_open_without_a_run(tmp_path: Path) -> None:
    hand_in(tmp_path / "ada", nb00=notebook("00", STUB))
    done = grade(tmp_path, "--csv", timeout=600)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == [
        f"ada,00_start_here.ipynb,00-{n},0" for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["."], [".", "--only", "0"], [".", "--json", "--csv"]], ids=str
)
def test_bad_input_gets_one_sentence(tmp_path: Path, arguments: list[str]) -> None:
    done = grade(*arguments, cwd=tmp_path, timeout=600)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr


# -- the walls ------------------------------------------------------------------------------------

#: What a cell must not be able to do; it prints what it could.
PROBE = """
import os

print([os.environ.get("SECRET"), os.environ["HOME"] == {home!r}])
print([os.access(p, os.R_OK) for p in {paths!r}])
"""
#: Leaves a process that outlives its parents, unless somebody looks after it, and tells who it is.
TELLS = """
import os, sys

os.system("(setsid sleep 9879 &) ; sleep 0")
os.write(int(sys.argv[1]), str(os.getuid()).encode())
"""


def run(sandboxes: sandbox.Sandboxes, *program: str) -> tuple[sandbox.Ended, str]:
    """Run a program in a sandbox, in the place of labkit's own and with the number of the file for
    what it tells as its last argument; return how it ended and what it told."""
    sandboxes._program = lambda words: [*program, words[2]]  # type: ignore[method-assign]
    job = sandboxes.job()
    ended = sandboxes.run(job, "", [], sandbox.Limits())
    return ended, job.told.read_text()


@pytest.mark.slow
def test_a_sandbox_shows_nothing_of_the_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine := tmp_path / "mine").write_text("secret")
    monkeypatch.setenv("SECRET", "token")
    paths = [str(mine), __file__, str(Path.home() / ".bashrc")]
    with sandbox.choose() as sandboxes:
        if not sandboxes.walls.namespaces:
            pytest.skip("no namespaces can be made here")
        code = PROBE.format(home=str(Path.home()), paths=paths)
        ended, _ = run(sandboxes, "python", "-P", "-c", code)
    assert ended.log.splitlines() == ["[None, False]", "[False, False, False]"]


@pytest.mark.parametrize("namespaces", [True, False])
@pytest.mark.parametrize("other_user", [True, False])
def test_what_is_told_arrives_and_nothing_lives_on(
    tmp_path_factory: pytest.TempPathFactory, namespaces: bool, other_user: bool
) -> None:
    root = os.geteuid() == 0
    if (other_user or namespaces) and not root:
        pytest.skip("needs root")
    base = reachable(tmp_path_factory.mktemp("walls"))
    sandboxes = sandbox.Sandboxes(sandbox.Walls(namespaces, other_user or namespaces), base)
    ended, told = run(sandboxes, "python", "-P", "-c", TELLS)
    assert ended.code == 0, ended.log
    assert (int(told) == os.getuid()) is not (other_user or namespaces)
    assert not [p for p in psutil.process_iter(["cmdline"]) if "9879" in (p.info["cmdline"] or [])]


#: A program of an ordinary user, who begins as root: this Python may be where only root can read,
#: so that what the sandbox shows is the system alone.
ORDINARY = """
import os, sys, sysconfig
from pathlib import Path
from labkit.teaching import sandbox

sysconfig.get_path("scripts")  # it is read from Python's own files, once
base, user, program = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
sandboxes = sandbox.Sandboxes(sandbox.Walls(True, False), base)
for path in (base, *base.rglob("*")):
    os.chown(path, user, user)
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
sandboxes._view = lambda: {place: place for place in sandbox.SYSTEM if os.path.exists(place)}
sandboxes._program = lambda words: program
ended = sandboxes.run(sandboxes.job(), "", [], sandbox.Limits())
print(ended.code, ended.log)
"""


@as_root
def test_an_ordinary_user_has_walls_as_well(tmp_path: Path) -> None:
    base = reachable(tmp_path) / "base"
    base.mkdir()
    try:
        as_nobody("unshare", "--user", "--map-root-user", "true")
    except subprocess.CalledProcessError:
        pytest.skip("an ordinary user can make no namespaces here")
    look = "id -u; ls /root /home /var 2> /dev/null; touch /mine 2> /dev/null || echo read-only"
    command = [sys.executable, "-c", ORDINARY, base, str(NOBODY), "sh", "-c", look]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"0 {NOBODY}", "read-only"]
