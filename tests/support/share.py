"""Let expensive tests take turns: a pytest plugin, which ``make test`` loads.

Most of an hour of tests runs programs and answers on ranks whose judgement is tested from
recordings in seconds. Each commit runs a share of those, the next commit the next one; of what
else starts ranks, kernels or servers a quarter, besides one file for each thing that a cell needs.
So do a notebook's cells that are tagged "costly": no other cell may need what they leave.
What a change touches always runs whole. ``SHARE=all`` (``make test-all``) runs everything.
"""

from __future__ import annotations

import os
import re
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from .parts import ROOT

#: Says which share runs: "all", or its number from 1 to ``SHARES``.
VARIABLE = "SHARE"
SHARES = 8
#: Says since which commit changes count; by default the branch's beginning, or the last commit.
BASE = "SHARE_BASE"


@dataclass(frozen=True)
class Turn:
    """Tests that take turns.

    Attributes
    ----------
    tests
        A regular expression for the beginning of a test's id.
    shares
        In how many shares they are divided; 0: they run in ``make test-all`` only.
    always
        Endings of the ids of those that run all the same.
    by_file
        The tests of a file stay together: some build on one another.
    """

    tests: str
    shares: int = SHARES
    always: tuple[str, ...] = ()
    by_file: bool = False


#: One program per kind of wait: what only ranks can show is observing, freeing and recovering.
WAITS = (
    "a cached function makes the call only once",
    "a key of the default store that nobody sets",
    "a pipeline's stage runs one micro-batch fewer",
    "a rank skips init_process_group",
    "a rank skips monitored_barrier that has an hour",
    "a send before the barrier that the receiver passes first",
    "a thread receives and the main thread joins it, on both sides",
    "an executor's task starts a thread that reduces with a rank that does not",
    "everybody takes from anybody first",
    "init_rpc on some ranks",
    "new_subgroups on some ranks",
)
#: Files of ``tests/ranks`` that always run: a lab is there, a cell runs, shows and sends what it
#: should; what goes wrong is told, freed and forgotten.
ALWAYS = (
    "control|examples|few_messages|flight_recorder|lab|magics|messages|fake_nccl|"
    "output|p2p_record|private|process_group|recovery|request|survey|too_long|too_short|"
    "trial|watchdog"
)
#: Begins the names of cells with this tag.
COSTLY = "costly"
#: The first that fits counts; what none fits always runs.
TURNS = (
    Turn(rf"{COSTLY}/", by_file=True),
    Turn(r"tests/course/test_answers\.py::test_(a_wrong|another)"),
    Turn(r"tests/course/test_mutants\.py::test_\w+\[", 0),
    Turn(r"tests/course/test_on_fake_nccl\.py::test_compared_cells"),
    Turn(r"tests/course/test_recipe\.py::", 4),
    Turn(r"tests/ranks/test_tables_on_fake_nccl\.py::test_a_"),
    Turn(
        r"tests/ranks/test_deadlock_programs\.py::test_\w+\[",
        always=tuple(f"[2-{name}]" for name in WAITS),
    ),
    Turn(r"tests/ranks/test_faults\.py::test_a_fault\w+\[2-", 1),
    Turn(rf"tests/ranks/test_({ALWAYS})\.py::", 1),
    Turn(
        r"tests/ranks/test_(benchmarks|correct_programs|faults|hidden_internals|lifecycle|live|"
        r"random_programs|torchrun_magic|zygote)\.py::",
        4,
    ),
    Turn(r"tests/(ranks|tools)/", 4, by_file=True),
    Turn(r"tests/launchers/"),
    Turn(r"tests/project/test_(wheel|site|container)\.py::"),
    Turn(r"tests/browser/"),
)
#: A changed file (a regular expression) -> the tests that then run whole, by their beginnings; \1
#: stands for what the first group of the file has found.
TOUCHES = {
    r"(tests/.*\.py)": (r"\1::",),
    r"labkit/(?:\w+/)*(\w+)\.py": (r"tests/\w+/test_\1\.py::",),
    r"labkit/launch/": ("tests/launchers/", "tests/ranks/test_(lifecycle|startup|zygote)"),
    r"labkit/hosts/": ("tests/launchers/",),
    r"labkit/notebook/": (
        r"tests/ranks/test_(completion|debugger|live|noblock|px_options|variables|wrong_side)\.py::",
    ),
    r"labkit/runtime/(error_texts|output)": (r"tests/ranks/test_(late_output|wrong_side)\.py::",),
    r"labkit/rank/observe/|labkit/runtime/(control|follow|process_group|recovery|watchdog)\.py": (
        r"tests/ranks/test_(deadlock|correct)_programs\.py::",
        r"tests/ranks/test_(faults|stop_button|tables_on_fake_nccl)\.py::",
    ),
    r"labkit/\w+/torchrun": ("tests/launchers/test_torchrun", "tests/ranks/test_torchrun"),
    r"labkit/rank/trial/": (r"tests/course/test_answers\.py::",),
    r"labkit/teaching/|tests/support/homes": (r"tests/tools/test_grade\.py::",),
    r"labkit/tools/": ("tests/tools/",),
    r"tests/support/(cells|situations)\.py": (
        r"tests/ranks/test_(deadlock|correct)_programs\.py::",
    ),
    r"tests/support/(answers|mutants|witnesses)\.py": (r"tests/course/test_answers\.py::",),
    r"notebooks/(\d\d_\w+)\.ipynb": (
        rf"{COSTLY}/notebooks/\1\.ipynb::",
        r"tests/course/test_on_fake_nccl\.py::\w+\[\1\]",
    ),
    r"labkit/course/exercises/nb(\d\d)/": (r"tests/course/test_answers\.py::\w+\[\1-",),
    r"tests/data/witnesses/(\d\d-\d)\.md": (r"tests/course/test_answers\.py::\w+\[\1\b",),
    r"labkit/course/\w+\.py": (r"tests/course/test_answers\.py::test_another",),
    r"notebooks/scripts/|labkit/course/datasets": (
        rf"{COSTLY}/notebooks/",
        r"tests/course/test_recipe\.py::",
    ),
    r"tests/support/(on_)?fake_nccl\.py": (r"tests/ranks/test_tables_on_fake_nccl\.py::",),
    r"tests/support/deadlocks\.py": (r"tests/ranks/test_deadlock_programs\.py::",),
    r"tests/support/correct_programs/": (r"tests/ranks/test_correct_programs\.py::",),
    r"pyproject\.toml|requirements\.lock|Makefile": ("tests/project/",),
    r"(\.site/|notebooks/|docs/)": (r"tests/project/test_site\.py::",),
    r"labkit/tools/jupyterlab": ("tests/browser/",),
}


def number(test: str, shares: int) -> int:
    """Return the share of a test, from 0; of the notebooks, each next one has the next."""
    notebook = re.search(r"\[(\d\d)_", test)
    return (int(notebook[1]) if notebook else zlib.crc32(test.encode())) % shares


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints, none if it cannot say."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


@cache
def commit() -> int:
    """Return how many commits there are up to the one that is tested, 0 without a repository."""
    return int(next(iter(git("rev-list", "--count", "HEAD")), "0"))


def changed() -> list[str]:
    """Return the files that differ from the base, uncommitted ones too."""
    base = os.environ.get(BASE) or next(iter(git("merge-base", "HEAD", "origin/main")), "")
    if base in ("", *git("rev-parse", "HEAD")) or not git("rev-parse", "--verify", base):
        base = "HEAD~1"
    return git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")


def touched(files: Iterable[str]) -> list[str]:
    """Return regular expressions for the tests that belong to changed files."""
    found = []
    for file in files:
        for pattern, tests in TOUCHES.items():
            if match := re.match(pattern, file):
                first = re.escape(match[1] or "") if match.re.groups else ""
                found += [test.replace(r"\1", first) for test in tests]
    return sorted(set(found))


def turn_of(said: str) -> int:
    """Return the turn, from 0: the share that was asked for, or that of the commit."""
    return int(said) - 1 if said else commit() % SHARES


def runs(test: str, turn: int, whole: Sequence[str] = ()) -> bool:
    """Return whether a test runs in a turn, from 0."""
    if any(re.match(pattern, test) for pattern in whole):
        return True
    for group in TURNS:
        if re.match(group.tests, test):
            if group.always and test.endswith(group.always):
                return True
            if not group.shares:
                return False
            one = test.partition("::")[0] if group.by_file else test
            return number(one, group.shares) == turn % group.shares
    return True


def check(said: str) -> str:
    """Return which share was asked for: "all", a number, or "" for the commit's.

    Raises
    ------
    ValueError
        If it is none of these.
    """
    if said in ("", "all") or (said.isdecimal() and 1 <= int(said) <= SHARES):
        return said
    raise ValueError(f"{VARIABLE}={said}: it is all, or a number from 1 to {SHARES}.")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a share that does not exist."""
    try:
        config.stash[KEY] = check(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


KEY = pytest.StashKey[str]()


def name_of(item: pytest.Item) -> str:
    """Return the id of a test; of a notebook's costly cell, with its tag before it."""
    tags = getattr(item, "cell", {}).get("metadata", {}).get("tags", ())
    return f"{COSTLY}/{item.nodeid}" if COSTLY in tags else item.nodeid


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose turn it is not."""
    said = config.stash[KEY]
    if said == "all":
        return
    turn, whole = turn_of(said), touched(changed())
    kept = [item for item in items if runs(name_of(item), turn, whole)]
    if left := list(set(items) - set(kept)):
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def pytest_report_header(config: pytest.Config) -> str:
    """Return which share runs."""
    said = config.stash[KEY]
    if said == "all":
        return "share: all"
    text = f"share {turn_of(said) + 1} of {SHARES}; {VARIABLE}=all (make test-all) runs all"
    return text if commit() else f"{text}; no history here: what a change touches is unknown"
