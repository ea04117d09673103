"""The words of verdicts."""

from __future__ import annotations

import pytest
import torch

from labkit.course import sentences
from labkit.course.exercise import NOT_TRIED, Failed, Goal
from labkit.course.judge import judge
from labkit.course.result import Result
from labkit.wire.trial import Unusable
from tests.unit.course.test_judge import exercise, judged

ONE = Goal("collectives", most=lambda n: 1)


@pytest.mark.parametrize(
    ("goal", "counts", "said"),
    [
        (ONE, [4] * 4, "it takes 4 collectives; 1 is allowed."),
        (ONE, [1, 2, 1, 1], "rank 1 takes 2 collectives; 1 is allowed."),
        (ONE, [1, 2, 2, 1], "ranks 1–2 take 2 collectives; 1 is allowed."),
        (Goal("messages sent", exactly=lambda n: n - 1), [6] * 4,
         "it sends 6 messages; exactly 3 are allowed."),
        (Goal("messages sent", exactly=lambda n: n - 1), [0] * 4,
         "it sends 0 messages; exactly 3 are expected."),
        (Goal("bytes sent", most=lambda n: 1000 * n), [1500, 9000, 0, 4096],
         "rank 1 sends 9,000 bytes; 4,000 are allowed."),
        (Goal("collectives", exactly=lambda n: 2), [1] * 4,
         "it takes 1 collective; exactly 2 are expected."),
    ],
)  # fmt: skip
def test_a_goal_in_numbers(goal: Goal, counts: list[int], said: str) -> None:
    counted = [{goal.measure: count} for count in counts]
    result = Result(exercise(goals=(goal,)), 4, [1] * 4, [1] * 4, counted)
    assert judge(result).sentence == f"The result is right, but {said}"


def test_where_a_result_differs() -> None:
    def said(names: list[str]) -> str:
        return sentences.different(" on rank 2", names).removeprefix("The result on rank 2 ")

    assert said([]) == "differs from the expected one."
    assert said(["α in µs"]) == "differs from the expected one in α in µs."
    assert said(list("abcde")) == "differs from the expected one in a, b, c and 2 more."


def test_a_right_value_of_a_wrong_type() -> None:
    assert judged(["1", "1"]).sentence == (
        "Ranks 0–1: the value is right, but not the type: it is text; a whole number is expected."
    )


def test_what_the_others_waited_for_is_a_consequence() -> None:
    raised, vain = Failed("KeyError", "a", ("t[a]",)), Failed("Deadlock", "waited in vain")
    assert judged([vain, raised, vain]).sentence == (
        "It raises KeyError on rank 1: a, in the line `t[a]`. Ranks 0, 2 then waited for a rank "
        "that had failed."
    )


@pytest.mark.parametrize(
    ("unusable", "said"),
    [
        (Unusable("TypeError", "float() argument", "a list of 2 lists", "list[float]"),
         "It returns a list of 2 lists on ranks 0–1; list[float] is expected "
         "(TypeError: float() argument)."),
        (Unusable("TypeError", "cannot pickle 'Work' object", "a Work"),
         "It returns a Work on ranks 0–1, which is a promise of a result: call wait() on it, and "
         "return what has arrived then."),
        (Unusable("TypeError", "cannot pickle", "a tuple of a function and None"),
         "It returns a tuple of a function and None on ranks 0–1: call the function, f(), and "
         "return its result."),
        (Unusable("TypeError", "x", "None"), "It returns None on ranks 0–1: is a return missing?"),
        (Unusable("TypeError", "f() takes 1 positional argument but 2 were given"),
         "The check cannot call it: f() takes 1 positional argument but 2 were given. Keep the "
         "parameters that the first line of the cell had."),
    ],
)  # fmt: skip
def test_what_the_trial_could_not_use(unusable: Unusable, said: str) -> None:
    assert judged([Failed.of_trial(unusable)] * 2).sentence == said


def test_what_did_not_end() -> None:
    late = Failed("TimedOut", "stopped after 20 s", ("while not work.is_completed():",))
    assert sentences.failed(exercise(), late, " on rank 1", []) == (
        "It did not end within 20 s on rank 1. It was in the line `while not work.is_completed():`."
    )


def fails(code: str) -> Failed:
    """Run a line, and return how it fails."""
    try:
        exec(code, {"torch": torch, "x": torch.ones(2), "y": torch.ones(3)})
    except Exception as error:
        return Failed(type(error).__name__, str(error), (code,))
    raise AssertionError(f"{code} does not fail")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("wrold_size + 1", "wrold_size is not defined there"),
        ("(lambda a: a)()", "keep the parameters"),
        ("None + 1", "Something there is None"),
        ("x + y", "Print the shapes"),
        ("torch.ones(2, 2) @ y", "Print the shapes"),
        ("x.view(3)", "Print the shapes"),
        ("torch.ones(2).long().add_(0.5)", "Print the dtypes"),
        ("[1][2]", "Print the length and the index"),
        ("{}['a']", "Print the keys"),
        ("x.mena()", "Print what stands before .mena"),
        ("bool(x)", "neither true nor false"),
        ("x.item()", "neither true nor false"),
        ("p = torch.ones(1, requires_grad=True); p += 1", "torch.no_grad"),
    ],
)
def test_errors_that_learners_meet(code: str, said: str) -> None:
    text = sentences.advice(fails(code))
    assert text.startswith(f"Begin with the line that raised the error: `{code}`.")
    assert said in text


def test_an_error_without_advice_has_its_line() -> None:
    said = sentences.advice(Failed("Odd", "", ("f()",)))
    assert said == "Begin with the line that raised the error: `f()`."
    assert sentences.advice(Failed("NameError", "name 'x' is not defined")) == ""


def test_a_part_that_was_not_tried_is_not_said_to_differ() -> None:
    two = exercise(entries=("first", "second"))
    result = Result(two, 1, yours=[[1, NOT_TRIED]], expected=[[2, 3]])
    assert result.differing == ["first"]
