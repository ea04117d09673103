"""Where two values differ, and how a misconception shows in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labkit.course.compare import Comparison, same
from labkit.course.exercise import Failed
from labkit.course.mistakes import near, simulated

STOPPED, DEADLOCK = Failed("Stopped"), Failed("Deadlock")


def test_entries_have_names_by_label_or_by_key() -> None:
    def names(yours: Any, expected: Any, *labels: str) -> list[str]:
        return [name for name, _ in Comparison(yours, expected).entries(labels)]

    assert names([1, 2], [1, 3], "a", "b") == ["b"]
    assert names({"x": 1, "y": 2}, {"x": 1, "y": 3}) == ["y"]
    for yours, labels in (([1], "ab"), ([1, 2], ""), (None, "ab"), (3, "ab")):
        assert names(yours, [1, 3], *labels) == []
    assert names({"x": 1}, {"y": 1}) == []


@pytest.mark.parametrize(
    ("yours", "expected", "places"),
    [
        ([1, [2, 3]], [1, [2, 4]], ["[1][1]"]),
        ([{"a": 1}], [{"a": 2}], ["[0]['a']"]),
        ([1, 2], [1], ["[1]"]),
        ({"a": 1}, {"b": 1}, ["['b']", "['a']"]),
        (torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 5]]), ["[1][1]"]),
        (3, 4, [""]),
        ([1], [1], []),
    ],
)
def test_the_innermost_parts_that_differ(yours: Any, expected: Any, places: list[str]) -> None:
    assert [place for place, *_ in Comparison(yours, expected).leaves()] == places


def test_rounding_is_no_difference() -> None:
    third = torch.tensor([1.0]) / 3
    assert near([third, 1.0], [third + 1e-6, 1.00001])
    assert not near([third], [third + 1e-3])
    assert not near([third], [STOPPED])


def test_a_mistake_is_known_by_what_it_gives() -> None:
    sums = simulated(lambda n: [float(sum(range(n)))] * n)
    assert sums([6.0] * 4, [1.5] * 4, 4)
    assert not sums([6.0, 6.0, 6.0, 1.5], [1.5] * 4, 4)
    assert not sums([DEADLOCK] * 4, [1.5] * 4, 4)


def test_nobody_is_accused_of_what_is_right_by_chance() -> None:
    """On one rank the sum is the mean."""
    assert not simulated(lambda n: [0.0])([0.0], [0.0], 1)


def test_words_that_show_without_quotes_are_words() -> None:
    class Said(str):
        """As the trials of files have it."""

    assert same("none", Said("none"))
    assert not same("none", Said("one"))
    assert not same(1, Said("1"))
