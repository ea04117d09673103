"""`make test-gpu` and `make wheels`: what they choose, run, compare and tell, without a GPU."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import NotebookNode
from rich.console import Console
from typer.testing import CliRunner

from tests.gpu import wheels
from tests.gpu.run import __main__ as command
from tests.gpu.run import children, course, prepare, report, testing
from tests.gpu.run.budget import CLOSING, Budget
from tests.gpu.run.result import FAILED, NOT_RUN, PASSED, Item, Step, exit_code
from tests.support.compare import compare
from tests.support.conda_versions import ROOT, direct_dependencies

MACHINE = {
    "gpus": [{"name": "H", "gib": 139.0}], "driver": "580", "cores": 16, "system": "Linux",
    "python": "3.12.3", "torch": "2.11.0", "cuda": "13.0", "nccl": "2.30.7",
    "nccl_of_torch": "2.28.9", "preloaded": "", "packages": {},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "GRACE", (2.0, 0.5))
    monkeypatch.setattr(children, "TIDY", 0.5)


def plenty() -> Budget:
    return Budget(1000.0)


def none_left() -> Budget:
    return Budget(1.0)


# -- time ---------------------------------------------------------------------------------------


def test_the_time_left_counts_from_the_beginning_and_keeps_some_for_the_end():
    assert Budget(480.0, time.time() - 100).left() == pytest.approx(380 - CLOSING, abs=5)
    assert Budget(480.0, time.time() - 500).left() == 0


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["passed", "passed"], PASSED),
        (["passed", "skipped"], PASSED),
        (["skipped", "skipped"], NOT_RUN),
        (["passed", "not run"], NOT_RUN),
        (["passed", "failed", "not run"], FAILED),
        ([], NOT_RUN),
    ],
)
def test_the_exit_code_is_0_only_if_everything_ran_and_passed(states, code):
    step = Step("one", [Item("a", state) for state in states])
    assert exit_code([step]) == code
    assert exit_code([Step("whole", [Item("a", "passed")]), step]) == code
    assert exit_code([Step("broken", [Item("a", "failed")]), step]) == FAILED
    assert exit_code([]) == NOT_RUN


def has_ended(pid: int) -> bool:
    """Tell whether a process runs no longer; who should take note of that may be late."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -- programs -----------------------------------------------------------------------------------


def test_a_program_that_does_not_listen_is_ended_with_all_that_it_started(tmp_path):
    code = (
        "import signal, subprocess, sys, time\n"
        "for n in (signal.SIGINT, signal.SIGTERM): signal.signal(n, signal.SIG_IGN)\n"
        "sleep = [sys.executable, '-S', '-c', 'import time; time.sleep(600)']\n"
        "print(subprocess.Popen(sleep, start_new_session=True).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    log = tmp_path / "log"
    ended = children.run(
        [sys.executable, "-S", "-c", code], seconds=1.5, log=log, env=dict(os.environ)
    )
    assert (ended.by, ended.code) == ("time", -9)
    assert len(ended.left) == 1
    assert "time.sleep(600)" in ended.left[0]
    assert has_ended(int(log.read_text()))


# -- tests --------------------------------------------------------------------------------------

SOME = """
import time
import pytest

def test_good(): pass
def test_bad(): assert 1 == 2
@pytest.mark.skip(reason="there is no moon")
def test_left_out(): pass
def test_hangs():
    while True:
        try: time.sleep(600)
        except KeyboardInterrupt: pass
def test_behind(): pass
@pytest.fixture
def broken(): 1 / 0
def test_set_up(broken): pass
"""


def run_tests(
    folder: Path,
    source: str,
    budget: Budget,
    silence: float = 60.0,
    stop: threading.Event | None = None,
) -> Step:
    (folder / "test_some.py").write_text(source)
    return testing.run_tests(
        "some tests",
        ["test_some.py"],
        budget=budget,
        folder=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        silence=silence,
        stop=stop,
        root=folder,
    )


def test_a_test_that_hangs_is_named_and_the_rest_runs_without_it(tmp_path):
    step = run_tests(tmp_path, SOME, plenty(), silence=8.0)
    states = {item.name.rpartition("::")[2]: item.state for item in step.items}
    assert states == {
        "test_good": "passed", "test_bad": "failed", "test_left_out": "skipped",
        "test_hangs": "failed", "test_behind": "passed", "test_set_up": "failed",
    }  # fmt: skip
    why = {item.name.rpartition("::")[2]: item.why for item in step.items}
    assert "assert 1 == 2" in why["test_bad"]
    assert why["test_left_out"] == "there is no moon"
    assert why["test_hangs"] == "no end within 8 s"
    assert "ZeroDivisionError" in why["test_set_up"]
    assert step.state == "failed"
    assert "test_behind" in (tmp_path / "some.2.xml").read_text()


def test_what_is_not_reached_is_named_as_not_run(tmp_path):
    stop, began = threading.Event(), tmp_path / "began"
    source = (
        "import pathlib, time\n"
        "def test_a(): pass\n"
        f"def test_b(): pathlib.Path({str(began)!r}).touch(); time.sleep(600)\n"
        "def test_c(): pass\n"
    )

    def watch() -> None:
        while not began.exists():
            time.sleep(0.1)
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    step = run_tests(tmp_path, source, plenty(), stop=stop)
    found = [(item.name.rpartition("::")[2], item.state) for item in step.items]
    assert found == [("test_a", "passed"), ("test_b", "failed"), ("test_c", "not run")]
    assert [item.why for item in step.items[1:]] == ["stopped", "stopped"]
    assert (tmp_path / "some.1.xml").exists()


def test_tests_that_cannot_be_read_are_a_failure(tmp_path):
    (tmp_path / "some.1.jsonl").write_text('{"collected": ["of the run before"]}\n')
    step = run_tests(tmp_path, "import nothing_of_this_name", plenty())
    assert [item.name for item in step.items] == ["pytest"]
    assert step.state == "failed"
    assert "nothing_of_this_name" in step.items[0].why


def test_without_time_nothing_begins(tmp_path):
    step = run_tests(tmp_path, SOME, none_left())
    assert (step.state, step.why, step.items) == ("not run", "the time was over", [])
    step = course.run_course(
        1, course.notebooks(), budget=none_left(), folder=tmp_path, env=dict(os.environ)
    )
    assert step.state == "not run"
    assert len(step.items) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    assert {item.why for item in step.items} == {"the time was over"}


def test_every_file_with_a_test_for_gpus_is_run():
    files = testing.gpu_files(ROOT / "tests/gpu")
    assert ROOT / command.FAULTS in files
    assert sorted(files) == sorted((ROOT / "tests/gpu").glob("test_*.py"))


# -- notebooks ----------------------------------------------------------------------------------


def cell(source: str, *outputs: NotebookNode, tags: list[str] | None = None) -> NotebookNode:
    made = nbformat.v4.new_code_cell(source, outputs=list(outputs), execution_count=1)
    made.metadata.tags = tags or []
    return made


def said(text: str, name: str = "stdout") -> NotebookNode:
    return nbformat.v4.new_output("stream", name=name, text=text)


def raised(name: str, value: str) -> NotebookNode:
    return nbformat.v4.new_output("error", ename=name, evalue=value, traceback=["where"])


def picture(text: str, png: str) -> NotebookNode:
    return nbformat.v4.new_output("display_data", {"text/plain": text, "image/png": png})


def book(*cells: NotebookNode) -> NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("text"), *cells])


def test_cells_are_compared_as_nbval_does():
    stored = book(
        cell("same", said("a"), said("b")),
        cell("other", said("a")),
        cell("ignored", said("1 s"), tags=["nbval-ignore-output"]),
        cell("drawn", picture("Figure", "one")),
        cell("announced", raised("E", "x"), tags=["raises-exception"]),
    )
    found = book(
        cell("same", said("ab")),
        cell("other", said("b")),
        cell("ignored", said("2 s"), tags=["nbval-ignore-output"]),
        cell("drawn", picture("Figure", "two")),
        cell("announced", raised("E", "y"), tags=["raises-exception"]),
    )
    result = compare(stored, found)
    assert (result.cells, result.reached, result.compared) == (5, 5, 4)
    assert [(one.cell, one.expected, one.found) for one in result.differences] == [
        (2, "a", "b"), (5, "E: x", "E: y")
    ]  # fmt: skip
    assert result.failed == ()


def test_an_error_is_a_failure_unless_the_other_copy_has_it_too():
    stored = book(cell("a", raised("UsageError", "There is no rank 3.")), cell("b", said("ok")))
    found = book(cell("a", raised("UsageError", "no rank 3")), cell("b", raised("Deadlock", "!")))
    assert [(one.cell, one.error) for one in compare(stored, found).failed] == [(2, "Deadlock: !")]


def test_cells_that_were_not_reached_are_not_compared():
    stored, found = book(cell("a", said("1")), cell("b")), book(cell("a", said("1")), cell("b"))
    found.cells[2].execution_count = None
    result = compare(stored, found)
    assert (result.cells, result.reached, result.compared, result.differences) == (2, 1, 1, ())


def labkit_run(monkeypatch, copy: NotebookNode | None, code: int = 0, by: str = "itself") -> None:
    """Let ``labkit run`` end like this, with this executed copy."""

    def run(arguments, *, log, **_):
        assert arguments[1:4] == ["-m", "labkit", "run"]
        log.write_text("what it said")
        if copy is not None:
            nbformat.write(copy, arguments[arguments.index("--output") + 1])
        return children.Ended(code, 1.0, by, ())

    monkeypatch.setattr(children, "run", run)


def run_one(tmp_path: Path, stored: NotebookNode, **options) -> Item:
    nbformat.write(stored, tmp_path / "07_some.ipynb")
    step = course.run_course(
        2, [tmp_path / "07_some.ipynb"], budget=plenty(), folder=tmp_path, env={}, **options
    )
    return step.items[0]


def test_a_notebook_passes_though_its_output_differs_and_the_cells_are_listed(
    tmp_path, monkeypatch
):
    labkit_run(monkeypatch, book(cell("a", said("2"))))
    item = run_one(tmp_path, book(cell("a", said("1"))))
    assert (item.state, item.why, item.more["against"]) == ("passed", "", "stored")
    assert [one["cell"] for one in item.more["differences"]] == [1]


@pytest.mark.parametrize(
    ("cells", "code", "by", "why"),
    [
        ([cell("a", raised("ValueError", "no"))], 1, "itself", "Cell 1: ValueError: no"),
        ([nbformat.v4.new_code_cell("a")], 1, "itself", "It ended at cell 0 of 1."),
        ([cell("a", said("1"))], 0, "time", "It was ended: it took over 150 s."),
        ([cell("a", said("1"))], 0, "stop", "It was stopped."),
        (None, 2, "itself", "There is no executed copy.\nwhat it said"),
    ],
)
def test_a_notebook_that_fails_says_why(tmp_path, monkeypatch, cells, code, by, why):
    labkit_run(monkeypatch, cells and book(*cells), code, by)
    item = run_one(tmp_path, book(cell("a", said("1"))))
    assert item.state == "failed"
    assert why in item.why


def test_another_runs_copies_are_compared_with_where_there_are_some(tmp_path, monkeypatch):
    labkit_run(monkeypatch, book(cell("a", said("2"))))
    other = tmp_path / "other" / "notebooks"
    other.mkdir(parents=True)
    nbformat.write(book(cell("a", said("2"))), other / "07_some.2.ipynb")
    item = run_one(tmp_path, book(cell("a", said("1"))), against=tmp_path / "other")
    assert item.more["against"] == str(tmp_path / "other")
    assert item.more["differences"] == ()


def test_the_most_important_notebooks_come_first():
    names = [path.name[:2] for path in course.notebooks()]
    assert names[: len(course.FIRST)] == list(course.FIRST)
    assert len(names) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    assert [path.name for path in course.notebooks(["00"])] == ["00_start_here.ipynb"]


# -- the report ---------------------------------------------------------------------------------


def test_the_report_names_what_failed_what_differs_and_what_was_not_run(tmp_path):
    cells = [{"cell": 5}, {"cell": 8}]
    differs = {"against": "stored", "compared": 40, "differences": cells}
    steps = [
        Step("faults on NCCL", [Item("t::a", "passed"),
                                Item("t::b", "failed", why="it hung")]),
        Step("course, 1 rank", [Item("06_ddp", "passed", more=differs),
                                Item("13_rpc", "not run", why="the time was over")]),
        Step("course, 4 ranks", why="this NCCL (2.28.9) serves one rank on each GPU"),
    ]  # fmt: skip
    figures = [
        {"ranks": 1, "start_seconds": 2.5, "all_reduce_seconds": 4.0, "backend": "nccl",
         "devices": ["cuda:0"]},
        {"ranks": 4, "error": "no answer in 60 s"},
    ]  # fmt: skip
    found = report.Report("make test-gpu", MACHINE, steps, figures)
    found.save(tmp_path / "report.json")
    saved = json.loads((tmp_path / "report.json").read_text())
    assert [step["state"] for step in saved["steps"]] == ["failed", "not run", "not run"]
    assert saved["not_run"] == {
        "course, 1 rank": ["13_rpc (the time was over)"], "course, 4 ranks": []
    }  # fmt: skip
    assert saved["steps"][1]["items"][0]["more"]["differences"] == cells
    assert saved["machine"]["nccl"] == "2.30.7"
    shown = io.StringIO()
    Console(file=shown, width=100).print(report.table(found))
    assert "faults on NCCL" in shown.getvalue()
    lines = report.notes(steps)
    assert "faults on NCCL: t::b failed. it hung" in lines
    assert "course, 1 rank: not run: 13_rpc (the time was over)" in lines
    assert ("course, 1 rank: 06_ddp: 2 of 40 compared cells differ from the stored ones: 5, 8"
            in lines)  # fmt: skip
    assert lines[-1] == ("course, 4 ranks: not run, this NCCL (2.28.9) serves one rank on each GPU")
    assert report.figure_lines(figures) == [
        "start of 1: 2.5 s, to an all_reduce 4.0 s (nccl on cuda:0)",
        "start of 4: no answer in 60 s",
    ]
    assert report.machine_lines(MACHINE) == [
        "H, 139 GiB, driver 580, 16 cores",
        "torch 2.11.0, NCCL 2.30.7 (torch was built with 2.28.9), Python 3.12.3",
    ]


# -- the command --------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run nothing; list what would run, on a machine like MACHINE."""
    ran: list[str] = []

    def ask(module, *arguments, **_):
        ran.append(" ".join([module, *arguments]))
        return dict(MACHINE) if module == "machine" else {"error": "not here"}

    def run_tests(name, targets, **_):
        ran.append(name)
        return Step(name, [Item("a", "passed")])

    def run_course(ranks, paths, **_):
        ran.append(f"course {ranks}")
        return Step(f"course, {ranks}", [Item("00", "passed")])

    monkeypatch.setattr(command, "ask", ask)
    monkeypatch.setattr(testing, "run_tests", run_tests)
    monkeypatch.setattr(course, "run_course", run_course)
    return ran


def invoke(folder: Path, *arguments: str):
    import typer

    app = typer.Typer()
    app.command()(command.main)
    return CliRunner().invoke(app, ["--out", str(folder), *arguments])


def test_the_most_important_comes_first(tmp_path, runs):
    done = invoke(tmp_path)
    assert done.exit_code == PASSED, done.output
    assert runs == ["machine", "faults on NCCL", "tests on GPUs", "start 1", "start 4",
                    "course 1", "course 4"]  # fmt: skip
    assert len(json.loads((tmp_path / "report.json").read_text())["steps"]) == 4


def test_ranks_that_nccl_cannot_serve_are_named_as_not_run(tmp_path, runs, monkeypatch):
    monkeypatch.setitem(MACHINE, "nccl", "2.28.9")
    done = invoke(tmp_path)
    assert done.exit_code == NOT_RUN
    assert "course 4" not in runs
    assert "this NCCL (2.28.9) serves one rank on each GPU; 2.30 is needed" in done.output


def test_without_a_gpu_one_sentence_says_so(tmp_path, runs, monkeypatch):
    monkeypatch.setitem(MACHINE, "gpus", [])
    done = invoke(tmp_path)
    assert done.exit_code == NOT_RUN
    assert "torch 2.11.0 can use no GPU here" in done.output
    assert runs == ["machine"]
    done = invoke(tmp_path, "--no-gpu", "--no-tests", "--ranks", "2")
    assert done.exit_code == PASSED, done.output
    assert runs[1:] == ["machine", "start 2", "course 2"]


def test_an_nccl_from_the_wheels_takes_the_place_of_torchs(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RANKS", "3")
    monkeypatch.setattr(command, "HOME", tmp_path)
    (tmp_path / "nccl").mkdir()
    library = tmp_path / "nccl" / prepare.NCCL
    library.touch()
    assert "LD_PRELOAD" not in command.environment("s", gpu=True)  # an environment of its own
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    env = command.environment("s", gpu=True)
    assert env["LD_PRELOAD"] == str(library)
    assert "LABKIT_RANKS" not in env
    env = command.environment("s", gpu=False)
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert "LD_PRELOAD" not in env


def test_make_hands_on_what_was_said_and_nothing_else():
    def made(*arguments: str, **env: str) -> str:
        done = subprocess.run(
            ["make", "-n", "test-gpu", "WHEELS=w", "PYTHON=python", *arguments],
            cwd=ROOT, env={**outside, **env}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return " ".join(done.stdout.split())

    # As in a shell: a make that runs these tests would have its own say.
    outside = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    plain = 'python -m tests.gpu.run.prepare "w"'
    assert made(OUT="shell", GPU="0", ARGS="--no-tests") == plain
    assert made("OUT=o", "GPU=0", "AGAINST=a", "ARGS=--jobs 2") == (
        f'{plain} --out "o" --no-gpu --against "a" --jobs 2'
    )


# -- wheels -------------------------------------------------------------------------------------

LOCK = """\
# made by hand
big==1.0 \\
    --hash=sha256:aa
    # via torch
both==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:bb
    # via
    #   labkit (pyproject.toml)
    #   small
both==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:cc
    # via
    #   labkit (pyproject.toml)
    #   small
deep==1.0 \\
    --hash=sha256:dd
    # via both
small==1.0 \\
    --hash=sha256:ee
    # via
    #   top
    #   torch
tool==1.0 \\
    --hash=sha256:ff
    # via labkit (pyproject.toml:dev)
top==1.0 \\
    --hash=sha256:11
    # via labkit (pyproject.toml)
torch==2.0 \\
    --hash=sha256:22
    # via
    #   labkit (pyproject.toml)
    #   top
windows==1.0 ; sys_platform == 'win32' \\
    --hash=sha256:33
    # via top
"""


def test_the_wheels_are_what_is_asked_for_and_needs_without_torchs_own():
    found = wheels.chosen(LOCK, ["top", "torch"], "3.12")
    assert list(found) == ["both", "deep", "small", "top"]
    assert found["both"] == "both==2.0 \\\n    --hash=sha256:cc\n"
    assert "both==1.0" in wheels.chosen(LOCK, ["top"], "3.11")["both"]
    assert list(wheels.chosen(LOCK, ["top"], "3.12", {"torch", "both"})) == ["small", "top"]


def test_the_lock_gives_what_the_tests_and_notebooks_need_and_no_torch():
    lock = (ROOT / "requirements.lock").read_text()
    asked = direct_dependencies(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    found = set(wheels.chosen(lock, [*asked, *wheels.BUILD], "3.12"))
    assert {"numpy", "pytest", "nbval", "psutil", "rich", "typer", "pyyaml", "packaging",
            "hatchling", "ipyparallel", "nvidia-ml-py"} <= found  # fmt: skip
    assert not {"torch", "torchvision", "triton", "sympy", "nvidia-cublas", wheels.NCCL} & found
    assert not {"ruff", "mypy", "uv", "playwright"} & found
    assert list(wheels.chosen(lock, [wheels.NCCL], "3.12")) == [wheels.NCCL]


def test_parts_are_small_enough_and_are_joined_again(tmp_path):
    sizes = {"a.whl": 25, "b.whl": 6, "c.whl": 3, "d.whl": 1}
    source = tmp_path / "source"
    source.mkdir()
    contents = {name: os.urandom(size) for name, size in sizes.items()}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    last = wheels.lay_out(sorted(source.iterdir()), tmp_path / "parts", 10, first=3)
    parts = [list((tmp_path / "parts" / str(number)).iterdir()) for number in range(3, last + 1)]
    assert sum(map(len, parts)) == 6
    assert all(0 < sum(file.stat().st_size for file in part) <= 10 for part in parts)
    found = prepare.gather(tmp_path / "parts", tmp_path / "joined")
    assert {path.name: path.read_bytes() for path in found} == contents

    next((tmp_path / "parts").rglob("a.whl.2of3")).unlink()
    with pytest.raises(prepare.PrepareError, match=r"a.whl: of 3 pieces, these are not there: 2"):
        prepare.gather(tmp_path / "parts", tmp_path / "joined")


@pytest.mark.parametrize("folder", ["none", "."])
def test_a_folder_without_wheels_is_refused_in_one_sentence(tmp_path, folder):
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.run.prepare", str(tmp_path / folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("test-gpu: There ")
    assert done.stderr.count("\n") == 1


def test_the_library_of_nccls_wheel_is_laid_beside_the_environment(tmp_path):
    wheel = tmp_path / "nvidia_nccl_cu13-2.30.7-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as content:
        content.writestr("nvidia/nccl/lib/libnccl.so.2", "the library")
        content.writestr("nvidia/nccl/include/nccl.h", "")
    prepare.lay_nccl(wheel, tmp_path / "nccl")
    assert (tmp_path / "nccl" / prepare.NCCL).read_text() == "the library"
