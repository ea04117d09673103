"""How a result is wrong that no mistake describes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labkit.course.heuristics import heuristic
from labkit.course.result import Result
from labkit.course.slips import Formula
from tests.unit.course.test_judge import exercise


class Slips(Formula):
    """A formula in which a slip is always found."""

    def slip(self, yours: Any, world_size: int) -> str:
        return "It slips."


def said_of(yours: list[Any], expected: list[Any], on_ranks: bool, **changes: Any) -> str:
    where = "ranks" if on_ranks else "notebook"
    return heuristic(Result(exercise(where=where, **changes), len(yours), yours, expected))


SLIPS = Slips("", "", lambda _: [])
TYPE = "The value is right, but not the type: it is {}; {} is expected."
TYPES = TYPE.replace("value is", "values are")


@pytest.mark.parametrize(
    ("yours", "expected", "said"),
    [
        (["3"], [3], TYPE.format("text", "a whole number")),
        ([b"open"], ["open"], TYPE.format("bytes", "text")),
        ([1], [True], TYPE.format("a whole number", "True or False")),
        ([[3]], [3], TYPE.format("a list of 1 number", "a whole number")),
        ([[[1, 2], [3]]], [[1, 2, 3]],
         TYPES.format("a list of 2 lists", "a list of 3 numbers")),
        ([torch.ones(2)], [[1.0, 1.0]],
         TYPES.format("a tensor of float32 with shape (2,)", "a list of 2 numbers")),
        ([torch.ones(2, 1)], [torch.ones(2)], TYPES.format(
            "a tensor of float32 with shape (2, 1)", "a tensor of float32 with shape (2,)")),
        ([torch.zeros(2, 3)], [torch.ones(3)], "The shape is (2, 3); (3,) is expected."),
        ([[1, 2]], [[1, 2, 4]], "It has 2 items; 3 are expected: the last one is missing."),
        ([[4]], [[1, 2, 4]], "It has 1 item; 3 are expected: the first 2 are missing."),
        ([[7, 1, 2]], [[1, 2]], "It has 3 items; 2 are expected: the first one is too many."),
        ([[1, 2, 8, 9]], [[1, 2]], "It has 4 items; 2 are expected: the last 2 are too many."),
        ([[1, 9]], [[1, 2, 4]], "It has 2 items; 3 are expected."),
        ([[]], [[1, 2, 4]], "It has 0 items; 3 are expected."),
        ([[201, 32, 7]], [[50, 8, 2]],
         "Each number is 4 times as large as it should be, but for rounding."),
        ([[33, 11, 4]], [[98, 32, 11]],
         "Each number is 1/3 of what it should be, but for rounding."),
        ([[9, 11]], [[4, 5]], ""),
        ([[77, 11]], [[50, 8]], ""),
        ([[4.0, -8.0]], [[3.0, -6.0]], "Each number is 4/3 of what it should be."),
        ([torch.tensor([0.75, 3.0])], [torch.tensor([1.25, 5.0])],
         "Each number is 3/5 of what it should be."),
        ([[3.14, 6.28]], [[1.0, 2.0]], ""),
        ([4.0], [3.0], ""),
        ([[215, 32, 7]], [[50, 8, 2]], ""),
        ([["a", "b", "a", "b"]], [["a", "a", "a", "a"]],
         "Where it differs, it is 'b' instead of 'a'."),
        ([[True, True, True]], [[True, False, False]],
         "It is True in every case."),
        ([[True, True, False]], [[False, False, False]],
         "Where it differs, it is True instead of False."),
        ([["a", "b", "c"]], [["a", "a", "a"]], ""),
        ([[1, 1, 1, 1]], [[3, 1, 7, 12]], "It is 1 in every case."),
        ([[1, 1, 1, 5]], [[3, 2, 7, 12]], ""),
        ([[1, 1]], [[3, 7]], ""),
        ([[[4, 8], [3, 9]]], [[[2, 4], [1, 3]]],
         "In the first that differs: each number is 2 times as large as it should be."),
        ([[5, 11]], [[2, 3]], ""),
        ([[2, 1]], [[1, 2]], "The two values have changed places."),
        ([[3, 1, 2]], [[1, 2, 3]], "The values are right, but their order is not."),
        ([[True, False]], [[False, True]], "Each True should be False, and each False True."),
        ([12.0], [3.0], "It is 4 times as large as it should be."),
        ([[2.0, 3.0]], [[8.0, 12.0]], "Each number is 1/4 of what it should be."),
        ([-2.5], [2.5], "It is right but for the sign."),
        ([[1, 5, 3]], [[2, 6, 4]], "Each number is 1 too small."),
        ([[1.0, float("nan")]], [[1.0, 2.0]],
         "There is nan in it, as from 0 / 0 or from the variance of a single number."),
        (["ddp"], ["DDP"], "It is 'ddp'; 'DDP' is expected."),
        ([3.0], [3.5], "It is rounded down; it should not be."),
        ([[3, 5]], [[2.1, 4.7]], "Each number is rounded up; it should not be."),
        ([9.0], [3.0], "It is 3 times as large as it should be."),
        ([[9.0, 4.0]], [[3.0, 2.0]], "Each number is the square of what it should be."),
        ([[0.5, 0.25]], [[2.0, 4.0]], "Each number is 1 divided by what it should be."),
        ([[1.0, 6.0, 9.0]], [[1.0, 2.0, 3.0]], "It is 3 times as large as it should be."),
        ([[[1.0], [6.0, 9.0]]], [[[1.0], [3.0, 6.0]]], ""),
        ([[[1.0, 6], {"a": 4}]], [[[1.0, 5], {"a": 3}]],
         "Each number that differs is 1 too large."),
        ([[[3, 1, 2], 7]], [[[1, 2, 3], 7]], "The values are right, but their order is not."),
        ([[torch.tensor([2, 1, 3]), torch.tensor([5, 4, 3])]],
         [[torch.tensor([1, 2, 3]), torch.tensor([3, 4, 5])]],
         "The values are right, but their order is not."),
        ([torch.tensor([[1, 2], [3, 4]])], [torch.tensor([[1, 3], [2, 4]])],
         "Rows and columns are exchanged."),
        ([3.5], [3.0], ""),
        ([[1, 2]], [[7, 9]], ""),
        (["a"], ["b"], ""),
        ([None], [3], ""),
        ([float("nan")], [float("nan")], ""),
        ([1.0], [1.5e308], ""),
        ([float("inf")], [2.0], ""),
        ([10**400], [3], ""),
        ([{"w": torch.ones(2)}], [{"w": torch.ones(3)}], "The shape is (2,); (3,) is expected."),
        ([{"a": [5, 7, 2], "b": [0, 9, 0]}], [{"a": [5, 2, 7], "b": [0, 0, 9]}],
         "The values are right, but their order is not."),
        ([[[2, 1], [2, 3, 1]]], [[[1, 2], [1, 2, 3]]],
         "The values are right, but their order is not."),
        ([[{"a": 1, "b": 9}, {"a": 2, "b": 7}]], [[{"a": 1, "b": 5}, {"a": 2, "b": 5}]],
         "Only 'b' is wrong."),
        ([[{"a": 1, "b": 9, "c": 3}, {"a": 2, "b": 5, "c": 8}]],
         [[{"a": 1, "b": 5, "c": 9}, {"a": 2, "b": 5, "c": 5}]], "Only 'b' and 'c' are wrong."),
        ([[(1, 9), (2, 7)]], [[(1, 5), (2, 5)]], "Of its 2 parts only the second is wrong."),
        ([[torch.tensor([[1.0, 2], [9, 8]]), torch.tensor([[5.0, 6], [3, 5]])]],
         [[torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([[5.0, 6], [7, 7]])]],
         "Of its 2 parts only the second is wrong."),
        ([[(1, 9, 8), (2, 7, 9)]], [[(1, 5, 3), (2, 5, 2)]],
         "Of its 3 parts only the first is right."),
        ([[(1, 9), (7, 2)]], [[(1, 5), (5, 2)]], ""),
        ([[torch.tensor([200, 7, 9]), "int64"]], [[torch.tensor([200, 200, 3]), "int64"]], ""),
        ([[{"a": 1}, {"a": 2}]], [[{"a": 1, "b": 3}, {"a": 2, "b": 4}]], "It lacks 'b'."),
        ([[{"c": 1}]], [[{"a": 1, "b": 3}]], "It lacks 'a' and 'b'."),
        ([[3.0, 1.5]], [[9.0, 2.25]], "Each number is the square root of what it should be."),
        ([[8.0, -2.0]], [[256.0, 0.25]],
         "Each number is the base-2 logarithm of what it should be."),
        ([[0.4, 0.75]], [[0.6, 0.25]], "Each number is 1 minus what it should be."),
        ([0.75], [0.25], "It is 3 times as large as it should be."),
        ([0.6], [0.4], ""),
        ([3.0], [9.5], ""),
        ([[-2.0, 3.0]], [[3.0, -2.0]], "The two values have changed places."),
        ([[-3.0, -7.0]], [[4.0, 8.0]], ""),
        ([0], [3], ""),
    ],
)  # fmt: skip
def test_one_result(yours: list[Any], expected: list[Any], said: str) -> None:
    assert said_of(yours, expected, on_ranks=False) == said
    assert said_of(yours * 4, expected * 4, on_ranks=True) == said


def test_what_is_not_the_same_on_all_ranks_is_not_said() -> None:
    assert (
        said_of([6.0, 3.0], [3.0, 3.0], on_ranks=True) == "It is 2 times as large as it should be."
    )
    assert "as large" not in said_of([6.0, 9.0], [3.0, 3.0], on_ranks=True)


def test_a_slip_in_a_formula_says_more_than_which_part_is_wrong() -> None:
    yours, expected = [[(1, 9), (2, 7)]], [[(1, 5), (2, 5)]]
    assert said_of(yours, expected, False, formula=SLIPS) == "It slips."
    doubled = [[(2, 10), (4, 10)]]
    assert "2 times" in said_of(doubled, expected, False, formula=SLIPS)


def test_between_ranks() -> None:
    assert said_of([6, 1, 2], [6, 6, 6], on_ranks=True) == (
        "Only rank 0 has it; every rank has to end with it."
    )
    rotated = said_of([1, 2, 3, 0], [0, 1, 2, 3], on_ranks=True)
    assert rotated == "Each rank has what the rank after it should have."
    assert "before" in said_of([3, 0, 1, 2], [0, 1, 2, 3], on_ranks=True)
    assert said_of([5, 7, 9], [1, 1, 2], on_ranks=True) == ""
    assert said_of([3, 2, 1, 0], [0, 1, 2, 3], on_ranks=True).startswith(
        "The ranks have each other's"
    )
    every = said_of([2, 2, 2, 2], [0, 1, 2, 3], on_ranks=True)
    assert every == "Every rank has what only rank 2 should have."


@pytest.mark.parametrize(
    ("yours", "expected", "said"),
    [
        ([1.0, 2.0, 3.0], 6.0, "add up to what each should have: no rank has combined them."),
        ([[1, 5], [2, 0], [6, 1]], [3, 2], "have as their mean what each"),
        ([[1, 5], [2, 0], [6, 1]], [6, 5], "have as their largest what each"),
        ([[1, 5], [2, 0], [6, 1]], [1, 0], "have as their smallest what each"),
        ([1.0, 2.0, 4.0], 8.0, "differ from one another; all should have the same."),
    ],
)
def test_what_was_not_put_together(yours: list[Any], expected: Any, said: str) -> None:
    assert said in said_of(yours, [expected] * 3, on_ranks=True)
    assert said not in said_of(yours, [expected, expected, yours[0]], on_ranks=True)
