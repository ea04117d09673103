"""Expensive tests take turns, and what a change touches runs whole."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from labkit.deadlock.wait_graph import judge
from tests.support import share, situations

WRONG = "tests/course/test_answers.py::test_a_wrong_answer_is_named[05-2-{}]"
TURNS = range(share.SHARES)
ANSWERS = [WRONG.format(i) for i in range(400)]


def test_eight_turns_run_everything_once_but_what_only_test_all_runs():
    for tests in (ANSWERS, [f"tests/launchers/test_{i}.py::t" for i in range(50)]):
        turns = [[t for t in tests if share.runs(t, n)] for n in TURNS]
        assert sorted(t for turn in turns for t in turn) == sorted(tests)
    sizes = [sum(share.runs(t, n) for t in ANSWERS) for n in TURNS]
    assert min(sizes) > 25
    fault = "tests/ranks/test_faults.py::test_a_fault_is_named_and_survived[4-{}]"
    faults = [fault.format(i) for i in range(40)]
    runs = [t for n in TURNS for t in faults if share.runs(t, n)]
    assert sorted(runs) == sorted(2 * faults)  # four shares in eight turns
    mutant = "tests/course/test_mutants.py::test_try[00-1]"
    assert not any(share.runs(mutant, n) for n in TURNS)


def test_costly_cells_of_a_notebook_take_turns_together_and_the_others_run(monkeypatch):
    def cell(number: int, *tags: str) -> SimpleNamespace:
        node = {"metadata": {"tags": list(tags)} if tags else {}}
        return SimpleNamespace(nodeid=f"notebooks/12_x.ipynb::Cell {number}", cell=node)

    names = [share.name_of(cell(1)), share.name_of(cell(2, "nbval-ignore-output"))]
    costly = [share.name_of(cell(n, "costly", "nbval-ignore-output")) for n in (3, 4)]
    runs = [[share.runs(name, n) for name in (*names, *costly)] for n in TURNS]
    assert all(row[:2] == [True, True] and row[2] == row[3] for row in runs)
    assert sum(row[2] for row in runs) == 1
    test = SimpleNamespace(nodeid="tests/unit/base/test_files.py::t")
    assert share.name_of(test) == test.nodeid
    whole = share.touched(["notebooks/12_x.ipynb"])
    assert all(share.runs(name, n, whole) for n in TURNS for name in costly)


def test_the_next_commit_has_the_next_turn(monkeypatch):
    turns = []
    for count in range(20, 20 + share.SHARES):
        monkeypatch.setattr(share, "commit", lambda count=count: count)
        turns.append(share.turn_of(""))
    assert sorted(turns) == list(TURNS)
    assert [share.turn_of(said) for said in ("1", "8")] == [0, 7]


@pytest.mark.parametrize(
    "test",
    [
        "tests/unit/deadlock/test_cause.py::t[4-x]",
        "tests/course/test_answers.py::test_the_solution_of_the_notebook_passes[05-2]",
        "tests/ranks/test_faults.py::test_a_fault_is_named_and_survived[2-a rank skips barrier]",
        "notebooks/05_sync_sgd.ipynb::Cell 3",
        f"tests/ranks/test_deadlock_programs.py::test_a_deadlock[2-{share.WAITS[0]}]",
    ],
)
def test_what_is_quick_or_the_only_one_of_its_kind_always_runs(test):
    assert all(share.runs(test, n) for n in TURNS)


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("tests/launchers/test_mpi.py", "tests/launchers/test_mpi.py::test_x"),
        ("labkit/launch/zygote.py", "tests/launchers/test_slurm.py::test_x"),
        ("labkit/course/exercises/nb05/ex2.py", WRONG.format("x")),
        ("labkit/wire/timeline.py", "tests/ranks/test_timeline.py::test_x"),
        (
            "labkit/rank/observe/sampler.py",
            "tests/ranks/test_faults.py::test_a_fault_is_named_and_survived[4-x]",
        ),
        (
            "tests/support/fake_nccl.py",
            "tests/ranks/test_tables_on_fake_nccl.py::test_a_fault_is_named[2-x]",
        ),
    ],
)
def test_what_a_change_touches_runs_whole(file, test):
    assert not all(share.runs(test, n) for n in TURNS)
    whole = share.touched([file])
    assert all(share.runs(test, n, whole) for n in TURNS)
    assert not any(re.match(pattern, WRONG.replace("05-2", "04-1")) for pattern in whole)


def test_a_program_of_each_kind_of_wait_always_runs():
    kinds: dict[str, set[str]] = {}
    for recording in situations.read(situations.FOLDER / "deadlock_programs.jsonl"):
        if recording.ranks == 2 and recording.seen is not None:
            stuck = judge(recording.judged[-1]).suspected
            samples = [recording.seen.samples[rank] for rank in stuck]
            own = {s.wait.kind for s in samples if s.wait is not None}
            threads = {f"a thread in {i.wait.kind}" for s in samples for i in s.issuers if i.wait}
            kinds.setdefault(recording.program, set()).update(own | threads)
    assert set(share.WAITS) <= kinds.keys()
    assert set.union(*kinds.values()) == set.union(*(kinds[name] for name in share.WAITS))


def test_every_turn_and_every_touch_is_of_tests_that_exist(request):
    files = {str(path.relative_to(share.ROOT)) for path in share.ROOT.glob("tests/**/test_*.py")}

    def there(pattern: str) -> bool:
        pattern = pattern.removeprefix(f"{share.COSTLY}/")
        path = re.sub(r"::.*", "", pattern).replace("\\", "")
        return any(re.match(re.sub(r"::.*", "", pattern), file) for file in files) or (
            Path(share.ROOT, path).exists()
        )

    assert [turn.tests for turn in share.TURNS if not there(turn.tests)] == []
    tests = [test for group in share.TOUCHES.values() for test in group if r"\1" not in test]
    assert [test for test in tests if not there(test)] == []


def test_a_share_that_does_not_exist_is_refused():
    assert [share.check(said) for said in ("", "all", "1", "8")] == ["", "all", "1", "8"]
    for said in ("0", "9", "some", "-1"):
        with pytest.raises(ValueError, match="all, or a number from 1 to 8"):
            share.check(said)
