"""Exercises: what they may say, how answers are tried, counted, judged and reported."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import labkit
from labkit import LabError, RankDied
from labkit.course import catalogue, check, edition, material
from labkit.course import in_notebook as module
from labkit.course.compare import same
from labkit.course.exercise import Exercise, Failed, Goal, Mistake
from labkit.course.judge import Result, Verdict, judge
from labkit.course.report import LONGEST, describe, report
from labkit.notebook.show import plain
from labkit.rank.torch_internals import collectives
from tests.support import answers, witnesses
from tests.support.average import AVERAGE
from tests.support.cells import run_cell

NEIGHBOUR = "def neighbour():\n    return (rank + 1) % world_size"
ADD = "def average_of_all(x):\n    dist.all_reduce(x)\n    return x / world_size"


def sum_of_ranks() -> float:
    import torch
    import torch.distributed as dist

    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    return x.item()


def works(lab: labkit.Lab) -> bool:
    """Tell whether the process group is in order."""
    return lab.run(sum_of_ranks) == [6.0] * 4


def use_as_number(answer: Callable[..., Any], here: Any) -> float:
    return float(answer(torch.ones(1)))


def use_as_it_is(answer: Callable[..., Any], here: Any) -> Any:
    return answer(torch.ones(1))


def use_with_two(answer: Callable[..., Any], here: Any) -> Any:
    return answer(torch.ones(1), 2)


@pytest.fixture
def verdict(lab4: labkit.Lab, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Define an answer on four ranks and check it: the verdict's name, and what was printed."""

    def attempt(code: str, named: str | Exercise, **changes: Any) -> tuple[str, str]:
        run_cell(lab4, code)
        known = catalogue.find(named) if isinstance(named, str) else named
        exercise = replace(known, **changes)
        result, verdict = check.examine(exercise)
        print(report(result, verdict), end="")
        return verdict.name, plain(capsys.readouterr().out)

    return attempt


@pytest.fixture(autouse=True)
def _nothing_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_last", None)
    for of_exercises in (check._given, check._said, check._own):
        of_exercises.clear()


# -- what an exercise is ------------------------------------------------------------------------


def exercise(**changes: Any) -> Exercise:
    values = {
        "id": "99-1",
        "title": "Add up",
        "answer": "f",
        "trial": lambda answer, here: answer(),
        "expected": lambda n: [1] * n,
        "hints": ("a", "b", "c"),
    }
    return Exercise(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": "4-2"}, 'is like "03-2"'),
        ({"id": "04"}, 'is like "03-2"'),
        ({"answer": "a b"}, "the answer is a name"),
        ({"where": "moon"}, "where is one of ranks, notebook"),
        ({"hints": ("a",)}, "there are 3 hints, not 1"),
        ({"where": "notebook", "goals": (Goal("collectives", most=lambda n: 1),)}, "counted on"),
    ],
)
def test_an_exercise_that_cannot_be(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        exercise(**changes)


def test_a_goal_or_a_mistake_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="a goal measures one of"):
        Goal("steps", most=lambda n: 1)
    with pytest.raises(ValueError, match="either most= or exactly="):
        Goal("collectives")
    with pytest.raises(ValueError, match="when=, raises=, stuck= or missed="):
        Mistake("It is wrong.")
    for ways in ({"raises": "Error|"}, {"stuck": ".*"}):
        with pytest.raises(ValueError, match="which fits all"):
            Mistake("It is wrong.", **ways)


def test_only_the_file_of_an_exercise_is_loaded_for_it() -> None:
    code = (
        "import sys; from labkit.course import catalogue; catalogue.find('03-2'); "
        "own = [name for name in sys.modules if 'exercises.nb' in name]; "
        "assert sorted(name.partition('exercises.')[2] for name in own) == "
        "['nb03', 'nb03.ex2', 'nb03.ring'], own"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_goals() -> None:
    most = Goal("bytes sent", most=lambda n: 2 * n)
    assert [most.is_met(count, 4) for count in (0, 8, 9)] == [True, True, False]
    exactly = Goal("collectives", exactly=lambda n: 1)
    assert [exactly.is_met(count, 4) for count in (0, 1, 2)] == [False, True, False]


# -- find one -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("00-9", "There is no exercise '00-9'; notebook 00 has 00-1, 00-2, 00-3, 00-4."),
        ("77-1", "There is no exercise '77-1'; notebooks with exercises: 00, "),
        ("", "There is no exercise ''"),
        (4, 'named by its id, as in "00-1", not 4'),
        (None, 'named by its id, as in "00-1", not None'),
    ],
)
def test_an_exercise_that_is_not_there(name: Any, said: str) -> None:
    with pytest.raises(LabError) as caught:
        labkit.check(name)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ids_and_answers_are_unique() -> None:
    everything = [e for number in catalogue.numbers() for e in catalogue.of_notebook(number)]
    assert len({e.id for e in everything}) == len(everything)
    for number in catalogue.numbers():
        own = catalogue.of_notebook(number)
        assert [e.id for e in own] == [f"{number}-{k}" for k in range(1, len(own) + 1)]
        assert len({e.answer for e in own}) == len(own)


def test_importing_labkit_and_a_hint_need_little() -> None:
    code = (
        "import sys, labkit; labkit.check; labkit.solution; "
        "assert not {'torch', 'zmq', 'ipyparallel'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


# -- compare and judge --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("yours", "expected", "equal"),
    [
        (1, 1, True),
        (1, 2, False),
        (1, True, False),
        (True, 1, False),
        (10, 10.0, True),
        (0.1 + 0.2, 0.3, True),
        (0.31, 0.3, False),
        (float("nan"), float("nan"), True),
        ("a", "a", True),
        ("1", 1, False),
        (None, 1, False),
        (None, None, True),
        ([1, [2.0]], (1, (2.0,)), True),
        ([1], [1, 1], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2) + 1e-7, torch.ones(2), True),
        (torch.ones(2), torch.ones(2, 1), False),
        (torch.ones(1), 1.0, True),
        (torch.tensor(3), 3, True),
        (torch.tensor(True), True, True),
        ([torch.ones(1, 1), 2], [1.0, 2], True),
        (torch.ones(2), 1.0, False),
        (1.0, torch.ones(1), False),
        (torch.tensor([1]), torch.tensor([1]), True),
        (torch.tensor([1]), torch.tensor([2]), False),
        (torch.tensor([True]), torch.tensor([1]), False),
        (torch.ones(2).half(), torch.ones(2), True),
        (torch.ones(1, requires_grad=True), torch.ones(1), True),
        (Failed("ValueError"), 1, False),
        (Failed("ValueError"), torch.ones(1), False),
    ],
)
def test_same(yours: Any, expected: Any, equal: bool) -> None:
    assert same(yours, expected) is equal


def judged(yours: list[Any], expected: list[Any] | None = None, **changes: Any) -> Verdict:
    counts = changes.pop("counts", [None] * len(yours))
    forbidden = changes.pop("forbidden", [])
    wanted = [1] * len(yours) if expected is None else expected
    result = Result(exercise(**changes), len(yours), yours, wanted, counts, forbidden)
    return judge(result)


def test_the_first_mistake_that_is_true_is_named() -> None:
    said = {
        "It fails.": lambda yours, expected, n: yours[0].no_such_name,
        "It is two.": lambda yours, expected, n: yours == [2] * n,
        "It is even.": lambda yours, expected, n: yours[0] % 2 == 0,
    }
    mistakes = [Mistake(sentence, when=when) for sentence, when in said.items()]
    assert judged([1, 1], mistakes=mistakes).passed
    assert judged([2, 2], mistakes=mistakes).name == "It is two."
    assert judged([4, 4], mistakes=mistakes).name == "It is even."
    assert judged([3, 3], mistakes=mistakes).name == "different"


def test_what_no_mistake_describes() -> None:
    said = judged([1, "a", 1]).sentence
    assert said == "The result on rank 1 differs from the expected one."
    assert judged([None, None]).name == "nothing"
    assert judged([Failed("KeyError", "x"), 1]).sentence == "It raises KeyError on rank 0: x."
    stopped, vain = Failed("Stopped"), Failed("Deadlock")
    assert judged([stopped, vain, Failed("KeyError")]).name == "KeyError"
    assert judged([stopped, vain]).name == "Deadlock"


def test_forbidden_calls_come_first_and_goals_last() -> None:
    goal = Goal("bytes sent", most=lambda n: 4)
    counts = [{"bytes sent": 8}, {"bytes sent": 0}]
    assert judged([1, 1], counts=counts, goals=(goal,)).name == "goal: bytes sent"
    assert judged([1, 2], counts=counts, goals=(goal,)).name == "different"
    named = Mistake("It sends twice.", missed="bytes sent")
    assert judged([1, 1], counts=counts, goals=(goal,), mistakes=(named,)).name == named.sentence
    assert judged([1, 1], forbidden=["send"], goals=(goal,)).name == "forbidden: send"


# -- write it down ------------------------------------------------------------------------------


def written(yours: list[Any], expected: list[Any], **changes: Any) -> list[str]:
    counts = changes.pop("counts", [None] * len(yours))
    result = Result(exercise(**changes), len(yours), yours, expected, counts)
    return plain(report(result, judge(result))).splitlines()


def test_yours_stands_beside_expected_and_equal_ranks_share_a_line() -> None:
    assert written([1, 1, 1], [1, 1, 1]) == [
        "99-1  Add up",
        "           yours  expected",
        "ranks 0–2  1      1         ✓",
        "99-1 passed.",
    ]
    assert written([1, "a", 1], [1, 1, 1])[2:] == [
        "ranks 0, 2  1      1         ✓",
        "rank 1      'a'    1         ✗",
        "99-1 not yet.",
        "The result on rank 1 differs from the expected one.",
        "labkit.hint() gives a hint.",
    ]


def test_long_values_stand_below_each_other_and_are_cut() -> None:
    lines = written([[*range(30)]], [[*range(31)]])
    assert lines[1:4:2] == ["rank 0  ✗", "            21, 22, 23, 24, 25, 26, 27, 28, 29]"]
    assert max(map(len, lines)) <= 88
    text = describe(list(range(1000)))
    assert len(text) <= LONGEST + 3
    assert text.endswith("999]")
    assert "…" in text


def test_of_a_long_value_the_part_is_shown_that_differs() -> None:
    wrong = [*range(500), -1, *range(501, 1000)]
    assert written([wrong], [list(range(1000))])[2].split() == [
        "rank",
        "0:",
        "[500]",
        "-1",
        "500",
        "✗",
    ]
    text = "a" * 300
    lines = written([f"{text}bc{text}"], [f"{text}bd{text}"])
    assert any("bc" in line for line in lines)
    assert any("bd" in line for line in lines)


def test_entries_that_differ_have_a_line_each() -> None:
    labels = ("share(7, 3)", "share(8, 3)", "share(9, 3)")
    lines = written([[2, 3, 3], [2, 3, 3]], [[3, 3, 5], [2, 3, 3]], entries=labels)
    assert lines[1:5] == [
        "                     yours      expected",
        "rank 0: share(7, 3)  2          3          ✗",
        "rank 0: share(9, 3)  3          5          ✗",
        "rank 1               [2, 3, 3]  [2, 3, 3]  ✓",
    ]
    assert lines[6] == (
        "The result on rank 0 differs from the expected one in share(7, 3), share(9, 3)."
    )
    passed = written([[2, 3]] * 2, [[2, 3]] * 2, entries=("a", "b"))
    assert passed[2].split() == ["ranks", "0–1", "[2,", "3]", "[2,", "3]", "✓"]
    by_key = written([{"loss": 1.0, "step": 3}], [{"loss": 1.6, "step": 3}])
    assert by_key[2].split() == ["rank", "0:", "loss", "1.0", "1.6", "✗"]


def test_an_answer_that_gave_nothing_is_shown_nothing() -> None:
    """What is expected would only be given away."""
    for nothing in (None, [None, None], Failed("KeyError", "a", ("table[a]",))):
        lines = written([nothing], [["nccl", "mpi"]])
        assert lines[1] == "99-1 not yet."
        assert "nccl" not in "".join(lines)


def test_equal_texts_of_unequal_values_are_told_apart() -> None:
    lines = written([1], [True])
    assert lines[2].split() == ["rank", "0", "1", "True", "✗"]
    lines = written([torch.zeros(0, 2)], [torch.zeros(0, 2).bool()])
    assert "✗" in "".join(lines)
    lines = written([float("1.00001")], [1.00001 + 1e-3])
    assert "✗" in "".join(lines)


def test_goals_are_written_with_what_is_allowed() -> None:
    goals = (Goal("bytes sent", most=lambda n: 1000 * n),)
    counts = [{"bytes sent": 1500}, {"bytes sent": 1500}]
    line = "bytes sent per rank: 1,500 (allowed: at most 2,000) ✓"
    assert line in written([1, 1], [1, 1], goals=goals, counts=counts)
    counts[1] = {"bytes sent": 2500}
    line = "bytes sent: rank 0: 1,500; rank 1: 2,500 (allowed: at most 2,000) ✗"
    assert line in written([1, 1], [1, 1], goals=goals, counts=counts)
    line = "bytes sent: not counted (allowed: at most 2,000)"
    assert line in written([1, 1], [1, 1], goals=goals)


# -- on ranks -----------------------------------------------------------------------------------


def test_without_a_lab() -> None:
    code = "import labkit\ntry: labkit.check('00-1')\nexcept labkit.LabError as e: print(e)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "No lab is running; labkit.start() gives you one.\n"


def test_a_name_that_no_cell_has_defined(lab4: labkit.Lab) -> None:
    with pytest.raises(LabError, match=r"Ranks 0–3 have no `neighbour` yet: run the cell of"):
        labkit.check("00-3")
    run_cell(lab4, "if rank != 2:\n    neighbour = 1")
    with pytest.raises(LabError, match="Rank 2 has no `neighbour` yet"):
        labkit.check("00-3")


def test_check_prints_the_ranks_and_returns_the_verdict(
    lab4: labkit.Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cell(lab4, NEIGHBOUR)
    for _ in range(2):
        assert labkit.check("00-3") == Verdict("00-3", "passed")
        assert plain(capsys.readouterr().out).splitlines() == [
            "00-3  Name your neighbour",
            "        yours  expected",
            "rank 0  1      1         ✓",
            "rank 1  2      2         ✓",
            "rank 2  3      3         ✓",
            "rank 3  0      0         ✓",
            "00-3 passed.",
        ]


def test_what_an_answer_prints_is_shown_and_does_not_count(verdict: Any) -> None:
    name, text = verdict("def neighbour():\n    print('00-3 passed.')", "00-3")
    assert name == "nothing"
    assert text.startswith("ranks 0–3: 00-3 passed.\n")
    assert "00-3 not yet." in text


@pytest.mark.parametrize(
    "answer", ["neighbour = '00-3 passed.'", "neighbour = ...", "def neighbour():\n    ..."]
)
def test_what_is_no_answer_does_not_pass(verdict: Any, answer: str) -> None:
    assert verdict(answer, "00-3")[0] != "passed"


@pytest.mark.parametrize(
    "stub", ["...", '"""Name it.\n\n    >>> neighbour()\n    """\n    ...', "pass"]
)
def test_a_stub_is_not_tried(verdict: Any, stub: str) -> None:
    name, text = verdict(f"def neighbour() -> int:\n    {stub}", "00-3")
    assert name == "nothing"
    assert " ".join(text.split()) == (
        "00-3 Name your neighbour 00-3 not yet. `neighbour` is still empty: write it in the cell "
        "of exercise 00-3, run that cell, then check again. labkit.hint() gives a hint."
    )


@pytest.mark.parametrize(
    ("answer", "trial", "said"),
    [
        ("return [[1.0], [2.0]]", use_as_number,
         "It returns a list of 2 lists on ranks 0–3, which"),
        ("return dist.all_reduce(x, async_op=True)", use_as_it_is,
         "It returns a Work on ranks 0–3, which is a promise of a result: call wait()"),
        ("return 3", use_with_two, "The check cannot call it: average_of_all() takes 1 positional"),
    ],
)  # fmt: skip
def test_what_the_check_cannot_use_is_not_called_the_answers_error(
    lab4: labkit.Lab, verdict: Any, answer: str, trial: Any, said: str
) -> None:
    name, text = verdict(f"def average_of_all(x):\n    {answer}", AVERAGE, trial=trial, goals=())
    assert name == "TypeError"
    assert said in " ".join(text.split())
    assert "labkit/" not in text
    assert "-->" not in text
    assert works(lab4)


def test_an_error_in_torch_is_placed_there_and_not_in_labkit(verdict: Any) -> None:
    answer = "def average_of_all(x):\n    dist.send(x, 9)\n    return x"
    name, text = verdict(answer, AVERAGE)
    assert name == "ValueError"
    assert "raised in torch/distributed/distributed_c10d.py" in text
    assert "labkit/" not in text


def test_one_rank_raises_and_the_others_wait(lab4: labkit.Lab, verdict: Any) -> None:
    answer = (
        "def average_of_all(x):\n    if rank == 2:\n        raise KeyError('a')\n"
        "    dist.all_reduce(x)\n    return x / world_size"
    )
    told = Mistake("It waits.", when=lambda *_: True, stuck="wait")
    name, text = verdict(answer, AVERAGE, mistakes=(told,))
    assert name == "KeyError"
    said = " ".join(text.split())
    assert "It raises KeyError on rank 2: 'a', in the line `raise KeyError('a')`. Ranks" in said
    assert "Ranks 0–1, 3 then waited for a rank that had failed." in said
    assert works(lab4)


def test_a_call_of_an_earlier_cell_is_no_evidence(lab4: labkit.Lab, verdict: Any) -> None:
    run_cell(lab4, "for _ in range(3): dist.all_reduce(torch.ones(7))")
    answer = "import os\ndef neighbour():\n    if rank == 2:\n        os.abort()\n    return 1"
    name, text = verdict(answer, "00-3")
    assert name == "Died"
    assert "called all_reduce" not in text
    lab4.restart(ranks=[2])
    assert works(lab4)


def test_each_rank_makes_only_its_own_groups(lab4: labkit.Lab, verdict: Any) -> None:
    """What comes of it is chance: the verdict is not, and the lab works afterwards."""
    run_cell(lab4, "kept = rank")
    exercise = catalogue.find("23-4")
    (mistake,) = [m for m in exercise.mistakes if m.stuck]
    own = witnesses.of(exercise)["makes only its own groups"]
    for _ in range(3):
        name, text = verdict(answers.written(exercise, own), exercise.id)
        assert name == mistake.sentence, text
        assert works(lab4)
        assert lab4["kept"] == [0, 1, 2, 3]


def test_a_cell_that_changed_rank_is_no_trouble(lab4: labkit.Lab, verdict: Any) -> None:
    run_cell(lab4, "me, rank = rank, 17")
    try:
        answer = "def average_of_all(x):\n    dist.all_reduce(x)\n    return x / world_size"
        assert verdict(answer, AVERAGE)[0] == "passed"
    finally:
        run_cell(lab4, "rank = me")


def test_an_error_is_shown_with_its_line(lab4: labkit.Lab, verdict: Any) -> None:
    name, text = verdict("def average_of_all(x):\n    if rank == 1:\n        return 1 / 0", AVERAGE)
    assert name == "ZeroDivisionError"
    assert "--> " in text
    assert "return 1 / 0" in text
    assert works(lab4)


def test_an_answer_that_never_ends_is_stopped(lab4: labkit.Lab, verdict: Any) -> None:
    name, text = verdict("def neighbour():\n    while True:\n        pass", "00-3", seconds=0.5)
    assert name == "TimedOut"
    assert "It did not end within 0.5 s on ranks 0–3. It was in the line `" in text
    assert works(lab4)


def test_an_answer_that_waits_for_one_that_never_ends(lab4: labkit.Lab, verdict: Any) -> None:
    answer = (
        "def average_of_all(x):\n    while rank == 1:\n        pass\n"
        "    dist.all_reduce(x)\n    return x"
    )
    assert verdict(answer, AVERAGE, seconds=0.5)[0] == "TimedOut"
    assert works(lab4)
    assert verdict(ADD, AVERAGE)[0] == "passed"


def test_an_answer_that_cannot_be_interrupted(lab4: labkit.Lab, verdict: Any) -> None:
    answer = (
        "def neighbour():\n    while rank == 1:\n        try:\n            while True:\n"
        "                pass\n        except KeyboardInterrupt:\n            pass\n    return 1"
    )
    name, text = verdict(answer, "00-3", seconds=0.5)
    assert name == "TimedOut"
    assert "lab.restart(ranks=[1])" in text
    lab4.restart(ranks=[1])
    assert works(lab4)


def test_a_deadlock_is_proved_and_undone(lab4: labkit.Lab, verdict: Any) -> None:
    answer = "def average_of_all(x):\n    if rank:\n        dist.all_reduce(x)\n    return x"
    name, text = verdict(answer, AVERAGE)
    assert name == "Deadlock"
    assert "rank 0, which has ended" in text
    assert works(lab4)


def test_an_answer_that_ends_its_process(lab4: labkit.Lab, verdict: Any) -> None:
    answer = "import os\ndef neighbour():\n    if rank == 2:\n        os._exit(3)\n    return 1"
    name, text = verdict(answer, "00-3")
    assert name == "Died"
    assert "lab.restart(ranks=[2])" in text
    with pytest.raises(RankDied):
        labkit.check("00-3")
    lab4.restart(ranks=[2])
    assert works(lab4)
    assert verdict(NEIGHBOUR, "00-3")[0] == "passed"


def test_an_answer_that_changes_the_group(lab4: labkit.Lab, verdict: Any) -> None:
    answer = NEIGHBOUR.replace("return", "dist.destroy_process_group()\n    return")
    name, text = verdict(answer, "00-3")
    assert name == "passed"
    assert "labkit has formed the lab's own anew" in text
    assert works(lab4)


def test_messages_that_nobody_receives_do_not_reach_the_next_answer(
    lab4: labkit.Lab, verdict: Any
) -> None:
    answer = NEIGHBOUR.replace(
        "return", "dist.isend(torch.ones(1), (rank + 1) % 4) if rank == 0 else None\n    return"
    )
    verdict(answer, "00-3")
    assert works(lab4)
    run_cell(
        lab4, "t = torch.zeros(1)\nif rank == 0: dist.send(t + 5, 1)\nif rank == 1: dist.recv(t, 0)"
    )
    assert lab4["t"][1].item() == 5


def test_an_answer_that_cannot_come_back(verdict: Any) -> None:
    assert verdict("def neighbour():\n    return (i for i in range(3))", "00-3")[0] == "TypeError"


@pytest.mark.slow
def test_a_learners_notebook_runs_with_its_stubs_and_passes_once_they_are_filled() -> None:
    """In a kernel, as in JupyterLab: a stub says "not yet" and stops nothing."""
    path = material.root() / "notebooks" / "00_start_here.ipynb"
    solved = nbformat.read(path, as_version=4)
    learners = edition.learners(solved)
    learners.cells[-1].source = "labkit.hint()"
    for source in ("labkit.solution()", solved_source(solved, "00-4"), 'labkit.check("00-4")'):
        learners.cells.append(nbformat.v4.new_code_cell(source))
    learners.cells.append(nbformat.v4.new_code_cell("lab.stop()"))
    NotebookClient(
        learners, timeout=60, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    printed = [
        plain("".join(out.get("text", "") for out in cell.outputs))
        for cell in learners.cells
        if cell.cell_type == "code"
    ]
    said = "".join(printed)
    for name in ("00-1", "00-2", "00-3", "00-4"):
        assert f"{name} not yet.\n`" in said
    assert printed[-5].startswith("Hint 1 of 3 for 00-4: ")
    assert "dist.all_reduce(count)" in printed[-4]
    assert printed[-2].endswith("00-4 passed.\n")


def solved_source(nb: nbformat.NotebookNode, name: str) -> str:
    return edition.solved(dict(edition.definitions(nb))[name])


# -- forbidden calls and counts -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("forbidden", "call"),
    [
        ("all_reduce", "dist.all_reduce(x)"),
        ("all_reduce", "own(x)"),
        ("all_reduce", "dist.group.WORLD.allreduce([x]).wait()"),
        ("all_reduce", "dist.group.WORLD._get_backend(x.device).allreduce([x]).wait()"),
        ("all_reduce", "functional.all_reduce(x, 'sum', dist.group.WORLD)"),
        ("all_reduce", "caught(x)"),
        ("all_gather", "dist.all_gather_into_tensor(torch.empty(8), x)"),
        ("all_gather_into_tensor", "dist.all_gather([x, x, x, x], x)"),
        ("all_gather", "dist.all_gather_object([None] * 4, 1)"),
        ("all_gather_object", "dist.all_gather_object([None] * 4, 1)"),
        ("broadcast", "dist.broadcast(x, 0)"),
        ("barrier", "dist.barrier()"),
        ("send", "dist.send(x, (rank + 1) % 4)"),
        ("send", "dist.group.WORLD.send([x], (rank + 1) % 4, 0)"),
        ("isend", "dist.isend(x, (rank + 1) % 4)"),
        ("new_group", "dist.new_group([0, 1])"),
        ("new_group", "made([0, 1])"),
    ],
)
def test_a_forbidden_call_is_found_in_every_form(
    lab4: labkit.Lab, verdict: Any, forbidden: str, call: str
) -> None:
    answer = (
        "import torch.distributed._functional_collectives as functional\n"
        "from torch.distributed import all_reduce as own, new_group as made\n"
        "def caught(x):\n"
        "    try:\n        dist.all_reduce(x)\n    except Exception:\n        pass\n"
        f"def average_of_all(x):\n    {call}\n    return x"
    )
    name, _ = verdict(answer, AVERAGE, forbids=(forbidden,))
    family = collectives.FORMS.get(forbidden, forbidden)  # to forbid a form is to forbid all
    assert name in (f"forbidden: {forbidden}", f"forbidden: {family}")
    assert works(lab4)  # the functions are back


@pytest.mark.parametrize(
    ("forbidden", "calls"),
    [
        ("send", "r = dist.isend(x, (rank + 1) % 4); dist.recv(y, (rank - 1) % 4); r.wait()"),
        ("all_gather_object", "dist.all_gather([y, y, y, y], x)"),
        ("reduce", "dist.all_reduce(x)"),
        ("gather", "dist.all_gather([y, y, y, y], x)"),
    ],
)  # fmt: skip
def test_what_is_not_forbidden_passes(verdict: Any, forbidden: str, calls: str) -> None:
    answer = f"def average_of_all(x):\n    y = torch.empty_like(x)\n    {calls}\n    return x"
    assert not verdict(answer, AVERAGE, forbids=(forbidden,))[0].startswith("forbidden")


@pytest.mark.parametrize(
    ("call", "numbers"),
    [
        ("dist.all_reduce(x)", (0, 8, 1)),
        ("dist.broadcast_object_list([1] if rank == 0 else [None], 0)", (0, ANY, 1)),
        ("dist.all_gather_object([None] * 4, x); gathered([None] * 4, 1)", (0, ANY, 2)),
        ("functional.all_reduce(x, 'sum', dist.group.WORLD).wait()", (0, 8, 1)),
        ("dist.broadcast(x, 0)", (0, (8, 0, 0, 0), 1)),
        ("dist.all_gather([x.clone() for _ in range(4)], x)", (0, 8, 1)),
        ("dist.reduce_scatter(x, [x.clone() for _ in range(4)])", (0, 32, 1)),
        ("dist.all_to_all_single(torch.empty(4), torch.ones(4))", (0, 16, 1)),
        ("dist.barrier()\n    dist.barrier()", (0, 0, 2)),
        ("dist.send(x, 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None",
         ((1, 0, 0, 0), (8, 0, 0, 0), 0)),
        ("[w.wait() for w in dist.batch_isend_irecv(["
         "dist.P2POp(dist.isend, x, (rank + 1) % 4), dist.P2POp(dist.irecv, y, (rank - 1) % 4)])]",
         (1, 8, 0)),
    ],
)  # fmt: skip
def test_what_is_sent_is_counted(lab4: labkit.Lab, call: str, numbers: tuple[Any, ...]) -> None:
    run_cell(
        lab4,
        "import torch.distributed._functional_collectives as functional\n"
        "from torch.distributed import all_gather_object as gathered\n"
        f"def average_of_all(x):\n    y = torch.empty_like(x)\n    {call}\n    return x",
    )
    result, _ = check.examine(AVERAGE)
    for measure, number in zip(
        ("messages sent", "bytes sent", "collectives"), numbers, strict=True
    ):
        expected = list(number) if isinstance(number, tuple) else [number] * 4
        assert [count[measure] for count in result.counts if count] == expected
    assert works(lab4)


# -- in the notebook itself ---------------------------------------------------------------------


def in_notebook(answer: Any, **changes: Any) -> tuple[Result, Verdict]:
    import __main__

    vars(__main__)["f"] = answer
    try:
        given = {"trial": lambda f, here: f(20), "expected": lambda: 400, **changes}
        return check.examine(exercise(where="notebook", **given))
    finally:
        del vars(__main__)["f"]


def test_an_answer_in_the_notebook() -> None:
    result, verdict = in_notebook(lambda x: x * x)
    assert verdict.passed
    assert plain(report(result, verdict)).splitlines()[1:3] == [
        "  yours  expected",
        "  400    400       ✓",
    ]
    wrong = Mistake("It doubles.", when=lambda yours, expected, n: yours == 40)
    assert in_notebook(lambda x: 2 * x, mistakes=(wrong,))[1].name == "It doubles."
    assert in_notebook(lambda x: 1 / 0)[1].name == "ZeroDivisionError"
    assert in_notebook(lambda x: [None])[1].name == "nothing"
    assert in_notebook(lambda x: None)[0].found == "unwritten"


def test_an_error_of_an_answer_in_the_notebook_has_its_lines() -> None:
    def answer(x: int) -> float:
        return x / 0

    result, verdict = in_notebook(answer)
    text = plain(report(result, verdict))
    assert "ZeroDivisionError: division by zero" in text
    assert "return x / 0" in text
    assert "labkit/" not in text
    assert "yours" not in text  # a table would only give away what is expected

    def lists(x: int) -> list[list[int]]:
        return [[x]]

    names: dict[str, Any] = {}  # a trial that stands where labkit's own do
    code = "def trial(f, here):\n    return float(f(20))"
    exec(compile(code, check.__file__, "exec"), names)
    result, verdict = in_notebook(lists, trial=names["trial"])
    assert verdict.sentence.startswith("It returns a list of 1 list; list[list[int]] is expected")


def test_an_answer_in_the_notebook_that_never_ends() -> None:
    def forever(x: int) -> None:
        while True:
            pass

    assert in_notebook(forever, seconds=0.2)[1].name == "TimedOut"


def test_the_time_of_an_answer_begins_when_torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import of torch that is broken off cannot be made again in the same process."""
    original, seen = module._here, list[Any]()

    def here() -> Any:
        seen.append(signal.getsignal(signal.SIGALRM))
        return original()

    monkeypatch.setattr(module, "_here", here)
    before = signal.getsignal(signal.SIGALRM)
    assert in_notebook(lambda x: x * x)[1].passed
    assert seen == [before]


def test_a_name_that_the_notebook_does_not_have() -> None:
    with pytest.raises(LabError, match="This notebook has no `nothing_here` yet"):
        check.examine(exercise(where="notebook", answer="nothing_here"))


# -- hints and solutions ------------------------------------------------------------------------


def test_three_hints_and_then_the_way_to_the_solution(
    lab4: labkit.Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cell(lab4, NEIGHBOUR)
    labkit.check("00-3")
    capsys.readouterr()
    said = []
    for _ in range(5):
        labkit.hint()
        said.append(" ".join(capsys.readouterr().out.split()))
    hints = catalogue.find("00-3").hints
    assert said[:3] == [f"Hint {k} of 3 for 00-3: {hint}" for k, hint in enumerate(hints, 1)]
    ending = (
        'There are no more hints for 00-3; labkit.solution("00-3") shows a solution, and '
        'labkit.solution("00-3", define=True) defines it.'
    )
    assert said[3:] == [ending] * 2
    labkit.solution()
    assert "return (rank + 1) % world_size" in capsys.readouterr().out
    labkit.hint("00-2")
    assert capsys.readouterr().out.startswith("Hint 1 of 3 for 00-2: ")


def hinted(capsys: pytest.CaptureFixture[str], name: str | None = None) -> str:
    capsys.readouterr()
    labkit.hint(name)
    return " ".join(capsys.readouterr().out.split())


def test_a_hint_begins_with_what_the_check_has_found(
    lab4: labkit.Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cell(lab4, "def neighbour():\n    return rank % wrold_size")
    labkit.check("00-3")
    first = hinted(capsys)
    assert first.startswith(
        "Hint for what the check of 00-3 found: Begin with the line that raised"
    )
    assert "`return rank % wrold_size`" in first
    assert "wrold_size is not defined there" in first
    assert hinted(capsys).startswith("Hint 1 of 3 for 00-3: ")
    labkit.check("00-3")  # it is found again, and said again
    assert "wrold_size" in hinted(capsys)

    own = Mistake("It doubles.", when=lambda *_: True, hint="Halve it.")
    known = replace(catalogue.find("00-3"), mistakes=(own,))
    monkeypatch.setattr(catalogue, "find", lambda name: known)
    run_cell(lab4, "def neighbour():\n    return 2 * rank")
    labkit.check("00-3")
    assert hinted(capsys) == "Hint for what the check of 00-3 found: Halve it."
    run_cell(lab4, NEIGHBOUR)
    labkit.check("00-3")
    assert hinted(capsys).startswith("Hint 2 of 3 for 00-3: ")


def test_a_hint_that_the_verdict_has_given_is_left_out(
    lab4: labkit.Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Mistake("Divide by world_size.", when=lambda *_: True)
    hints = ("Divide it by world_size.", "second", "third")
    known = replace(catalogue.find("00-3"), mistakes=(said,), hints=hints)
    monkeypatch.setattr(catalogue, "find", lambda name: known)
    run_cell(lab4, "def neighbour():\n    return rank + 1")
    assert hinted(capsys, "00-3").startswith("Hint 1 of 3")
    check._given.clear()
    labkit.check("00-3")
    assert hinted(capsys) == "Hint 2 of 3 for 00-3: second"


def test_a_solution_is_defined_where_the_answer_lives(
    lab4: labkit.Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import __main__

    run_cell(lab4, "def average_gradients(model): ...")
    labkit.solution("00-1", define=True)
    assert " ".join(capsys.readouterr().out.split()) == (
        "labkit has defined `average_gradients` on ranks 0–3: it is now the course's solution of "
        "exercise 00-1, and the cells below can use it."
    )
    labkit.check("00-1")
    assert "00-1 passed." in plain(capsys.readouterr().out)
    monkeypatch.setattr(__main__, "end_of_step", None, raising=False)
    labkit.solution("06-1", define=True)
    assert "` in this notebook" in capsys.readouterr().out
    labkit.check("06-1")
    assert "06-1 passed." in plain(capsys.readouterr().out)


@pytest.mark.parametrize("ask_for", [labkit.hint, labkit.solution])
def test_nothing_has_been_checked(ask_for: Callable[..., None]) -> None:
    with pytest.raises(LabError, match="No exercise has been checked yet"):
        ask_for()
    with pytest.raises(LabError, match="There is no exercise '00-9'"):
        ask_for("00-9")
