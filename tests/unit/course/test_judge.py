"""What is said of a result: which mistake it shows, and what comes before what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from labkit.course.exercise import Exercise, Failed, Mistake
from labkit.course.judge import Result, Verdict, judge

VAIN = Failed("Deadlock", "waited in vain")
LOST = Failed("Stopped", "waited for a rank that failed")
LATE = Failed("TimedOut", "stopped after 20 s")


def exercise(**changes: Any) -> Exercise:
    values: dict[str, Any] = {
        "id": "99-1",
        "title": "Add up",
        "answer": "f",
        "trial": lambda answer, here: answer(),
        "expected": lambda n: [1] * n,
        "hints": ("a", "b", "c"),
    }
    return Exercise(**{**values, **changes})


def judged(yours: list[Any], waited: str = "", **changes: Any) -> Verdict:
    return judge(Result(exercise(**changes), len(yours), yours, [1] * len(yours), waited=waited))


def mistake(**ways: Any) -> tuple[Mistake, ...]:
    return (Mistake("It is known.", **ways),)


def test_values_are_asked_only_where_every_rank_gave_one() -> None:
    anything = mistake(when=lambda yours, expected, n: True)
    assert judged([2, 2], mistakes=anything).name == "It is known."
    for failure in (Failed("ValueError", "x"), VAIN, LOST, LATE, Failed("Died")):
        assert judged([2, failure], mistakes=anything).name == failure.name


@pytest.mark.parametrize("slip", ["NameError: name 'x'", "TypeError: 'float' object", "Died: 6"])
def test_an_error_is_known_by_its_message(slip: str) -> None:
    name, _, message = slip.partition(": ")
    known = mistake(raises=r"TypeError: .*'NoneType'")
    assert judged([Failed("TypeError", "for /: 'NoneType'")] * 2, mistakes=known).mistake
    assert judged([Failed(name, message)] * 2, mistakes=known).name == name


def test_an_error_is_known_by_the_lines_that_it_came_through() -> None:
    known = mistake(raises=r"(?s)^IndexError: .*chunks\[")
    text = "list index out of range"
    own = Failed("IndexError", text, ("step(chunks)", "mine = chunks[rank]"))
    assert judged([own, own], mistakes=known).mistake
    assert not judged([Failed("IndexError", text, ("names[3]",))] * 2, mistakes=known).mistake


def test_the_cause_is_asked_and_not_its_consequences() -> None:
    raised = Failed("IndexError", "list index out of range", ("x[4]",))
    stuck = mistake(stuck="wait")
    assert judged([VAIN, VAIN, raised], "ranks 0–1 wait", mistakes=stuck).name == "IndexError"
    assert judged([VAIN, LOST], "ranks 0–1 wait", mistakes=stuck).name == "It is known."
    assert judged([LATE, LATE], "rank 0 waits", mistakes=stuck).name == "It is known."
    assert judged([VAIN, VAIN], "nobody", mistakes=stuck).name == "Deadlock"
    vain = mistake(raises="Deadlock|TimedOut|Stopped")
    assert judged([VAIN, LATE, LOST], "Deadlock", mistakes=vain).name in ("Deadlock", "TimedOut")


def test_a_learners_own_line_comes_before_an_error_of_the_trial() -> None:
    """A rank's store times out in the trial, since another rank raised before its turn."""
    trial, own = Failed("DistStoreError", "timeout"), Failed("KeyError", "a", ("table[key]",))
    known = mistake(raises="KeyError")
    assert judged([trial, own], mistakes=known).mistake
    assert judged([trial, Failed("Died", "signal 6")], mistakes=mistake(raises="Died")).mistake


def test_a_mistake_with_several_ways_needs_one() -> None:
    known = mistake(when=lambda yours, expected, n: yours == [3, 3], stuck="in send")
    assert judged([3, 3], mistakes=known).mistake
    assert judged([VAIN, VAIN], "rank 0 waits in send", mistakes=known).mistake
    assert not judged([4, 3], mistakes=known).mistake


def test_the_verdict_has_the_exercise_and_the_mistake() -> None:
    known = mistake(raises="KeyError")
    verdict = judged([Failed("KeyError", "a"), 1], mistakes=known)
    assert (verdict.exercise, verdict.mistake) == ("99-1", "It is known.")
    assert verdict.sentence == verdict.mistake
    assert judged([2, 1]).mistake is None


def test_crossed_groups_are_named_whatever_came_of_them() -> None:
    said = "Rank 0 made the group of ranks 0–1 where rank 2 made that of ranks 2–3: …"

    def crossed(yours: list[Any], **changes: Any) -> Verdict:
        return judge(Result(exercise(**changes), 2, yours, [1, 1], crossed=said))

    assert crossed([9, 9]).sentence == said
    assert not crossed([1, 1]).passed  # by chance
    known = mistake(stuck="made that of ranks")
    assert crossed([9, 9], mistakes=known).mistake
    assert crossed([Failed("KeyError", "a"), 1]).name == "KeyError"


def test_what_is_not_written_is_not_tried() -> None:
    def found(what: Any) -> Verdict:
        return judge(Result(exercise(), 2, [None] * 2, [None] * 2, found=what))

    assert found("unwritten").sentence == (
        "`f` is still empty: write it in the cell of exercise 99-1, run that cell, then check "
        "again."
    )
    assert found("no function").name == "no function"


def test_a_right_result_on_one_number_of_ranks_only() -> None:
    result = Result(exercise(), 4, [1] * 4, [1] * 4, found="one size")
    assert judge(result).sentence.startswith("It is right on 4 ranks, but not on 3: ")
    assert judge(replace(result, yours=[2] * 4)).name == "different"


@pytest.mark.parametrize(
    ("yours", "wanted", "name"),
    [
        ([None, 3], [1, 3], "nothing"),
        (
            {"of a folder": None, "ran": False},
            {"of a folder": "step-10.pt", "ran": False},
            "nothing",
        ),
        # None is a result here
        ([None, None], ["step-10.pt", None], "different"),
        (
            {"of a folder": None, "of none": None},
            {"of a folder": "a", "of none": None},
            "different",
        ),
    ],
)
def test_none_is_a_missing_return_only_where_no_part_is_to_be_none(
    yours: Any, wanted: Any, name: str
) -> None:
    assert judge(Result(exercise(), 2, [yours] * 2, [wanted] * 2)).name == name
