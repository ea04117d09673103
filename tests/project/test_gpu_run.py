"""`make test-gpu` and `make wheels`: what they choose, run, compare and tell, without a GPU."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import tomllib
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from typer.testing import CliRunner

from tests.bench.child import is_alive
from tests.gpu import wheels
from tests.gpu.run import __main__ as command
from tests.gpu.run import children, course, pack, plan, prepare, report, testing
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
    ("states", "code", "without_a_gpu"),
    [
        ([["passed", "passed"]], PASSED, PASSED),
        ([["passed", "skipped"]], PASSED, PASSED),
        ([["skipped", "skipped"]], NOT_RUN, NOT_RUN),
        ([["skipped"], ["passed"]], NOT_RUN, PASSED),  # what needs a GPU may be skipped
        ([["passed", "not run"]], NOT_RUN, NOT_RUN),
        ([["passed"], ["passed", "not run"]], NOT_RUN, NOT_RUN),
        ([["passed", "failed", "not run"]], FAILED, FAILED),
        ([["failed"], []], FAILED, FAILED),
        ([[]], NOT_RUN, NOT_RUN),
        ([], NOT_RUN, NOT_RUN),
    ],
)
def test_the_exit_code_is_0_only_if_everything_ran_and_passed(states, code, without_a_gpu):
    steps = [Step(f"{n}", [Item("a", state) for state in one]) for n, one in enumerate(states)]
    assert (exit_code(steps), exit_code(steps, gpu=False)) == (code, without_a_gpu)


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
    assert not is_alive(int(log.read_text()))


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
        "some",
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
    assert "test_behind" in (tmp_path / "some.2.jsonl").read_text()


def test_tests_that_cannot_be_read_are_a_failure(tmp_path):
    (tmp_path / "some.1.jsonl").write_text('{"collected": ["of the run before"]}\n')
    step = run_tests(tmp_path, "import nothing_of_this_name", plenty())
    assert [item.name for item in step.items] == ["pytest"]
    assert step.state == "failed"
    assert "nothing_of_this_name" in step.items[0].why


def test_without_time_nothing_begins(tmp_path):
    step = run_tests(tmp_path, SOME, none_left())
    assert (step.state, step.why, step.items) == ("not run", "the time was over", [])
    for options in ({"budget": none_left()}, {"budget": plenty(), "seconds": 5.0}):
        step = course.run_course(
            "rest-1", 1, course.notebooks(), folder=tmp_path, env=dict(os.environ), **options
        )
        assert step.state == "not run"
        assert {item.why for item in step.items} == {"the time was over"}


def test_every_file_with_a_test_for_gpus_is_run():
    files = testing.gpu_files(ROOT / "tests/gpu")
    assert {ROOT / file for file in plan.OWN_PIECE} < set(files)
    replay = ROOT / "tests/gpu/test_seen_on_nccl.py"  # on the fake NCCL, in `make test`
    assert {*files, replay} == set((ROOT / "tests/gpu").glob("test_*.py"))


# -- plans --------------------------------------------------------------------------------------


def test_both_plans_hold_every_notebook_on_one_and_four_ranks_and_each_piece_once():
    for pieces in plan.PLANS.values():
        keys = [piece.key for piece in pieces]
        assert len(set(keys)) == len(keys)
        for ranks in (1, 4):
            found = [p for piece in pieces if piece.kind == "course" and piece.ranks == ranks
                     for p in course.notebooks(piece.what)]  # fmt: skip
            assert sorted(found) == sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def test_the_first_pieces_of_a_plan_fit_into_their_minutes():
    """What comes before the course has its time, even if each piece takes all of its own; and of
    plan B all that needs ranks which share a GPU, but for the course."""
    for name, last, seconds in (("a", plan.COURSE_1, 420), ("b", plan.ONE_RANK, 400)):
        first = plan.PLANS[name][: plan.PLANS[name].index(last)]
        assert sum(piece.seconds for piece in first) <= seconds - CLOSING


def test_the_plan_is_chosen_by_what_nccl_can_do():
    assert plan.plan_for(MACHINE) == "b"
    assert plan.plan_for({**MACHINE, "nccl": "2.28.9"}) == "a"
    assert plan.plan_for({**MACHINE, "nccl": "2.28.9", "gpus": [{}, {}]}) == "b"
    assert plan.plan_for({**MACHINE, "nccl": None, "gpus": []}) == "a"


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


def test_what_differs_in_each_run_is_not_compared():
    log = "rank 0: [W1126 12:49:45.925421083 socket.cpp:207] [c10d] The hostname is unknown\n"
    stored = book(cell("a", said("1\n")), cell("b", said("at 0x7f12, collective 3\n")))
    found = book(
        cell("a", said("1\n"), said(log, "stderr")), cell("b", said("at 0x7faa, collective 5\n"))
    )
    assert compare(stored, found).differences == ()
    assert compare(found, stored).differences == ()
    found.cells[1].outputs[0].text = "2\n"
    assert [one.found.strip() for one in compare(stored, found).differences] == ["2"]


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
    options = {"ranks": 4, **options}
    step = course.run_course(
        "course", paths=[tmp_path / "07_some.ipynb"], budget=plenty(), folder=tmp_path, env={},
        **options,
    )  # fmt: skip
    return step.items[0]


@pytest.mark.parametrize(
    ("cells", "code", "by", "why"),
    [
        ([cell("a", raised("ValueError", "no"))], 1, "itself", "Cell 1: ValueError: no"),
        ([nbformat.v4.new_code_cell("a")], 1, "itself", "It ended at cell 0 of 1."),
        ([cell("a", said("1"))], 0, "time", "It was ended: it took over 120 s."),
        (None, 2, "itself", "There is no executed copy.\nwhat it said"),
    ],
)
def test_a_notebook_that_fails_says_why(tmp_path, monkeypatch, cells, code, by, why):
    labkit_run(monkeypatch, cells and book(*cells), code, by)
    item = run_one(tmp_path, book(cell("a", said("1"))))
    assert item.state == "failed"
    assert why in item.why


def test_one_rank_is_not_compared_with_four(tmp_path, monkeypatch):
    """A notebook that names rank 3 fails there, which says nothing; that it ends is a sign."""
    labkit_run(monkeypatch, book(cell("a", raised("UsageError", "There is no rank 3."))), code=1)
    stored = book(cell("a", said("1")))
    assert run_one(tmp_path, stored).state == "failed"
    item = run_one(tmp_path, stored, ranks=1)
    assert (item.state, item.more["compared"]) == ("passed", 0)
    assert item.more["against"] == "nothing: no run on 1 rank is there"


# -- the report ---------------------------------------------------------------------------------


def example(differences: int = 1) -> report.Report:
    """Return a report in which there is something of everything."""
    cells = [
        {"cell": n, "id": "x", "expected": "a\n1", "found": "a\n2"} for n in range(differences)
    ]
    differs = {"against": "stored", "compared": 40, "differences": cells}
    facts = {"figure": "start", "ranks": 1, "backend": "nccl", "start_seconds": 2.5}
    return report.Report(
        "test-gpu", plan="b", machine=MACHINE, seconds=100.0, total=360.0,
        steps=[
            Step("deadlocks-2", [Item("t/u.py::a", "passed"),
                                 Item("t/u.py::b", "failed", why="it\nhung")]),
            Step("one-rank", [Item("t/u.py::c", "skipped", why="one GPU")]),
            Step("course-1", [Item("07_ddp", "passed", more=differs),
                              Item("26_rpc", "not run", why="the time was over")]),
            Step("start-1", [Item("start-1", "passed", more={"facts": facts})]),
            Step("rest-4", why="this NCCL (2.28.9) serves one rank per GPU; 2.30 is needed"),
        ],
    )  # fmt: skip


def test_the_table_names_what_failed_what_differs_and_what_was_not_run():
    lines = report.table(example()).splitlines()
    assert lines[:3] == [
        "H, 139 GiB, driver 580, 16 cores",
        "torch 2.11.0, NCCL 2.30.7 (torch was built with 2.28.9), Python 3.12.3",
        "plan b; 100 of 360 s",
    ]
    assert "deadlocks-2: b: it hung" in lines
    assert "start-1: backend nccl, start_seconds 2.5" in lines
    assert "course-1 (the time was over): 26_rpc" in lines
    assert "rest-4: this NCCL (2.28.9) serves one rank per GPU; 2.30 is needed" in lines
    assert "course-1: 07_ddp cell 0: '1' → '2'" in lines
    assert "one-rank: 1 × one GPU" in lines
    (row,) = [line for line in lines if line.startswith("deadlocks-2  ")]
    assert row.split() == ["deadlocks-2", "1", "1", "0", "0", "0", "failed"]


def test_the_table_stays_within_what_a_machine_shows():
    found = example(differences=500)
    found.steps[0].items += [Item(f"t::{i}", "failed", why=f"{i} " * 99) for i in range(100)]
    text = report.table(found)
    assert 9_000 < len(text) <= report.LIMIT
    assert text.splitlines()[-1].endswith("more in report.json")
    assert text.count("-- failed") == 1


def test_a_saved_report_is_read_again(tmp_path):
    found = example()
    found.save(tmp_path)
    saved = json.loads((tmp_path / "report.json").read_text())
    assert [step["state"] for step in saved["steps"]] == ["failed", "skipped", "not run",
                                                          "passed", "not run"]  # fmt: skip
    assert saved["figures"] == [found.steps[3].items[0].more["facts"]]
    read = report.load(tmp_path / "report.json")
    assert [step.is_over for step in read.values()] == [True, True, False, True, False]
    assert read["deadlocks-2"].items == found.steps[0].items
    assert report.load(tmp_path / "none.json") == {}
    assert (tmp_path / "table.txt").read_text() == report.table(found) + "\n"


# -- what comes back ----------------------------------------------------------------------------


def test_what_is_packed_is_unpacked(tmp_path):
    source = tmp_path / "out"
    (source / "notebooks").mkdir(parents=True)
    (source / "report.json").write_text("{}")
    (source / "notebooks" / "a.ipynb").write_text("long " * 100)
    assert pack.pack(source, tmp_path / "packed") == []
    assert sorted(p.name for p in (tmp_path / "packed").iterdir()) == ["report.json",
                                                                      pack.ARCHIVE]  # fmt: skip
    pack.unpack(tmp_path / "packed", tmp_path / "back")
    assert (tmp_path / "back/notebooks/a.ipynb").read_text() == "long " * 100
    with pytest.raises(FileNotFoundError):
        pack.unpack(tmp_path / "back", tmp_path / "again")


def test_a_large_archive_is_cut_and_notebooks_are_left_out_first(tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "BYTES", 10_000)
    source, target = tmp_path / "out", tmp_path / "packed"
    source.mkdir()
    for number in range(6):
        (source / f"{number}.ipynb").write_bytes(os.urandom(9_000))
    (source / "z.log").write_bytes(os.urandom(9_000))
    (source / "report.json").write_text("{}")
    left_out = pack.pack(source, target)
    assert left_out
    assert all(name.endswith(".ipynb") for name in left_out)
    files = list(target.iterdir())
    assert len(files) <= pack.FILES
    assert all(path.stat().st_size <= 10_000 for path in files)
    pack.unpack(target, tmp_path / "back")
    assert (tmp_path / "back/z.log").read_bytes() == (source / "z.log").read_bytes()
    for path in source.glob("*.ipynb"):
        path.unlink()
    assert pack.pack(source, target) == []  # one piece now; the old ones are gone
    assert sorted(p.name for p in target.iterdir()) == ["report.json", pack.ARCHIVE]


# -- the command --------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Run nothing; list what would run, on a machine like MACHINE."""
    ran: list[str] = []

    def ask(module, *arguments, **_):
        ran.append(" ".join([module, *arguments]))
        return dict(MACHINE) if module == "machine" else {"figure": module, "ranks": 1}

    def run_tests(name, targets, **_):
        ran.append(" ".join([name, *targets[:1]]))
        return Step(name, [Item("a", "passed")])

    def run_course(name, ranks, paths, **_):
        ran.append(f"{name}: {len(paths)}")
        return Step(name, [Item(path.stem, "passed") for path in paths])

    monkeypatch.setattr(command, "HOME", tmp_path / "home")
    monkeypatch.setattr(command, "ask", ask)
    monkeypatch.setattr(testing, "run_tests", run_tests)
    monkeypatch.setattr(course, "run_course", run_course)
    return ran


def invoke(*arguments: str):
    import typer

    app = typer.Typer()
    app.command()(command.main)
    return CliRunner().invoke(app, list(arguments))


def saved(folder: Path) -> dict:
    return json.loads((folder / "home/out/report.json").read_text())


def test_ranks_that_nccl_cannot_serve_are_named_as_not_run(runs, monkeypatch):
    monkeypatch.setitem(MACHINE, "nccl", "2.28.9")
    assert invoke().exit_code == PASSED  # plan a
    assert not any("deadlocks" in what for what in runs)
    done = invoke("--plan", "b")
    assert done.exit_code == NOT_RUN
    assert "deadlocks-2: this NCCL (2.28.9) serves one rank per GPU; 2.30 is needed" in done.output


def test_without_a_gpu_one_sentence_says_so(tmp_path, runs, monkeypatch):
    monkeypatch.setitem(MACHINE, "gpus", [])
    done = invoke()
    assert done.exit_code == NOT_RUN
    assert "torch 2.11.0 can use no GPU here" in done.output
    assert runs == ["machine"]
    done = invoke("--no-gpu", "--piece", "start-1", "--piece", "course-4")
    assert done.exit_code == PASSED, done.output
    assert runs[1:] == ["machine", "figures start 1", f"course-4: {len(plan.FIRST)}"]


@pytest.fixture
def half_a_course(runs, monkeypatch):
    """Run the first notebook of a course only, in one command."""

    def half(name, ranks, paths, **_):
        states = ["passed", *["not run"] * (len(paths) - 1)]
        return Step(name, [Item(p.stem, s) for p, s in zip(paths, states, strict=True)], 5.0)

    def command(*arguments: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(course, "run_course", half)
            assert invoke(*arguments).exit_code == NOT_RUN
        runs.clear()

    return command


def test_a_second_run_goes_on_with_what_the_first_has_left(tmp_path, runs, half_a_course):
    both = ("--piece", "start-1", "--piece", "course-4")
    half_a_course(*both)
    done = invoke("--resume", *both)
    assert done.exit_code == PASSED, done.output
    assert runs == ["machine", f"course-4: {len(plan.FIRST) - 1}"]
    steps = saved(tmp_path)["steps"]
    assert [len(step["items"]) for step in steps] == [1, len(plan.FIRST)]
    runs.clear()
    assert invoke(*both).exit_code == PASSED  # without --resume everything runs anew
    assert len(runs) == 3


def test_a_piece_that_breaks_the_runner_is_a_failure_and_the_next_one_runs(
    tmp_path, runs, monkeypatch
):
    def broken(*_, **__):
        raise ValueError("zip() argument 2 is longer")

    monkeypatch.setattr(course, "run_course", broken)
    done = invoke("--piece", "course-4", "--piece", "start-1")
    assert done.exit_code == FAILED
    assert "course-4: course-4: ValueError: zip() argument 2 is longer" in done.output
    assert runs[-1] == "figures start 1"


def test_what_has_no_time_left_is_named(tmp_path, runs):
    done = invoke("--began", str(time.time() - 470), "--piece", "start-1", "--piece", "course-4")
    assert done.exit_code == NOT_RUN
    assert runs == ["machine"]
    assert "start-1: the time was over" in done.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--plan", "c"], "There is no plan c"), (["--piece", "moon"], "There is no piece moon")],
)
def test_a_wrong_name_is_refused_in_one_sentence(runs, arguments, sentence):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert sentence in " ".join(done.output.replace("│", " ").split())
    assert runs == []


# -- wheels -------------------------------------------------------------------------------------


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
    found = prepare.gather(tmp_path / "parts", tmp_path / "joined", partial=True)
    assert {path.name for path in found} == {"b.whl", "c.whl", "d.whl"}
