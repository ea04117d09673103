"""What slip in a formula gives the numbers of a wrong answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from labkit.course.judge import Result, judge
from labkit.course.slips import Formula
from tests.support.answers import EXERCISES

WITH_FORMULA = [name for name, exercise in EXERCISES.items() if exercise.formula]
#: a fixed part, what a row costs, rows, and over how many the rows are divided
CASES = ((1.0, 0.25, 24, 2), (9.0, 2.0, 15, 4), (0.5, 8.0, 7, 8), (20.0, 0.7, 6, 3))
STEP = Formula("rest = per_row * rows / n\nmax(fixed, rest) + 2 * fixed", "fixed per_row rows n",
               lambda _: CASES)  # fmt: skip
ROUNDED = Formula("ceil(2 * size / (n - 1))", "size n", lambda _: [(50, 4), (71, 3), (39, 6)])
CHOICE = Formula("'A' if 4 * size > 10 and not large or n == 1 else 'B'", "size large n",
                 lambda _: [(1, False, 1), (3, False, 2), (3, True, 2), (2, True, 3),
                            (2, False, 1)])  # fmt: skip


def answers(formula: Formula, text: str) -> list[Any]:
    """Return what another formula gives in the same cases."""
    return Formula(text, formula.names, formula.cases).values(4)


@pytest.mark.parametrize("name", WITH_FORMULA)
@pytest.mark.parametrize("n", [3, 4])
def test_the_formula_of_an_exercise_gives_what_is_expected(name: str, n: int) -> None:
    exercise = EXERCISES[name]
    assert exercise.formula
    ranks = exercise.where == "ranks"
    yours = exercise.expected(n) if ranks else [exercise.expected()]
    assert exercise.formula.values(n)
    assert exercise.formula.slip(yours, n) == ""  # no slip in what is right
    result = Result(exercise, n, yours, yours, counts=[{}] * n)
    assert not result.wrong
    assert Formula("0", "", lambda _: [()] * len(exercise.formula.values(n))).slip(yours, n) == ""


@pytest.mark.parametrize(
    ("formula", "text", "said"),
    [
        (STEP, "max(fixed, per_row * rows) + 2 * fixed", "without `/ n`"),
        (STEP, "max(fixed, rows / n) + 2 * fixed", "without `per_row *` in `per_row * rows`"),
        (STEP, "max(fixed, per_row * rows / n)", "without `+ 2 * fixed`"),
        (STEP, "2 * fixed", "without `max(fixed, rest) +`"),
        (STEP, "per_row * rows / n + 2 * fixed", "without `max`: `rest` alone"),
        (STEP, "min(fixed, per_row * rows / n) + 2 * fixed", "with `min` in the place of `max`"),
        (STEP, "fixed + per_row * rows / n + 2 * fixed", "with `sum` in the place of `max`"),
        (STEP, "max(fixed, per_row * rows * n) + 2 * fixed", "with `* n` in the place of `/ n`"),
        (STEP, "max(fixed, per_row * rows / n) + 3 * fixed", "with 3 in the place of 2"),
        (STEP, "max(fixed, per_row * n / rows) + 2 * fixed", "with `rows` and `n` exchanged"),
        (STEP, "max(fixed, rows * rows / n) + 2 * fixed", "with `rows` in the place of `per_row`"),
        (STEP, "max(fixed, per_row * rows / n) + 2 * n", "with `n` in one place of `fixed`"),
        (STEP, "max(fixed, per_row * (rows - 1) / n) + 2 * fixed",
         "with `rows - 1` in the place of `rows`"),
        (STEP, "max(fixed, per_row * rows / n / n) + 2 * fixed", "with one more `/ n`"),
        (ROUNDED, "2 * size / (n - 1)", "without `ceil`"),
        (ROUNDED, "floor(2 * size / (n - 1))", "with `floor` in the place of `ceil`"),
        (ROUNDED, "ceil(2 * size / n)", "without `- 1` in `n - 1`"),
        (ROUNDED, "ceil(2 * n / (size - 1))", "with `size` and `n` exchanged"),
        (CHOICE, "'A' if 4 * size > 10 and not large and n == 1 else 'B'",
         "with `and` in the place of `or`"),
        (CHOICE, "'A' if 4 * size > 10 and large or n == 1 else 'B'",
         "with the opposite of `not large`"),
        (CHOICE, "'A' if 2 * size > 10 and not large or n == 1 else 'B'", ""),
    ],
)  # fmt: skip
def test_a_slip_is_named(formula: Formula, text: str, said: str) -> None:
    found = formula.slip(answers(formula, text), 4)
    assert said in found
    assert bool(said) == bool(found)
    assert found == "" or found.startswith("This is exactly what comes out ")


@pytest.mark.parametrize(
    "yours",
    [
        STEP.values(4),
        answers(STEP, "fixed + 17 * rows"),  # not one slip
        [*STEP.values(4)[:2], 1000.0],  # a single one is wrong: that may be chance
        STEP.values(4)[:2],
        ["a", None, math.nan],
        None,
    ],
)
def test_what_no_slip_gives_has_no_name(yours: Any) -> None:
    assert STEP.slip(yours, 4) == ""


def test_no_more_than_two_slips_are_said_and_the_formula_stays_as_it_is() -> None:
    halved = answers(STEP, "max(fixed, per_row * rows / (2 * n)) + 2 * fixed")
    assert STEP.slip(halved, 4).count(", or with ") == 1
    assert STEP.slip(answers(STEP, "max(fixed, per_row * rows) + 2 * fixed"), 4)
    assert STEP.slip(STEP.values(4), 4) == ""


def test_the_likely_slips_come_first() -> None:
    rows, servers = (EXERCISES[name].formula for name in ("21-3", "26-4"))
    assert rows
    assert servers
    exchanged = rows.text.replace("flops / bandwidth", "bandwidth / flops")
    assert "`flops` and `bandwidth` exchanged, or without" in rows.slip(answers(rows, exchanged), 4)
    whole = answers(servers, servers.text.replace(" / workers", ""))
    assert servers.slip(whole, 4) == (
        "This is exactly what comes out without `/ workers`, or without `* workers` in "
        "`2 * workers`."
    )


def test_a_case_that_cannot_be_computed_hides_no_other_slip() -> None:
    divided = Formula("size / n", "size n", lambda _: [(6, 2), (9, 3), (0, 5)])
    assert (
        divided.slip([6, 9, 0], 4) == "This is exactly what comes out without `/ n` in `size / n`."
    )


@pytest.mark.parametrize(
    ("name", "right", "wrong", "said"),
    [
        ("12-4", " or ", " and ", "with `and` in the place of `or`"),
        ("25-1", " - compute", "", "without `- compute`"),
        ("21-4", "max(saves)", "min(saves)", "with `min` in the place of `max`"),
        ("20-2", "size / ranks", "size", "without `/ ranks` in `beta * size / ranks`"),
    ],
)
def test_the_verdict_names_it(name: str, right: str, wrong: str, said: str) -> None:
    exercise = EXERCISES[name]
    assert exercise.formula
    values = answers(exercise.formula, exercise.formula.text.replace(right, wrong))
    if exercise.where == "ranks":
        n, expected = 4, exercise.expected(4)
        yours = [values[len(values) // n * rank :][: len(values) // n] for rank in range(n)]
    else:
        n, expected, yours = 1, [exercise.expected()], [values]
    verdict = judge(Result(exercise, n, yours, expected, counts=[{}] * n))
    assert verdict.sentence.endswith(f" This is exactly what comes out {said}.")
