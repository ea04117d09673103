"""How a misconception shows in the values that came back."""

from __future__ import annotations

import torch

from labkit.course.exercise import Failed
from labkit.course.mistakes import near, would_give

STOPPED, DEADLOCK = Failed("Stopped"), Failed("Deadlock")


def test_rounding_is_no_difference() -> None:
    third = torch.tensor([1.0]) / 3
    assert near([third, 1.0], [third + 1e-6, 1.00001])
    assert not near([third], [third + 1e-3])
    assert not near([third], [STOPPED])


def test_a_mistake_is_known_by_what_it_gives() -> None:
    sums = would_give(lambda n: [float(sum(range(n)))] * n)
    assert sums([6.0] * 4, [1.5] * 4, 4)
    assert not sums([6.0, 6.0, 6.0, 1.5], [1.5] * 4, 4)
    assert not sums([DEADLOCK] * 4, [1.5] * 4, 4)


def test_nobody_is_accused_of_what_is_right_by_chance() -> None:
    """On one rank the sum is the mean."""
    assert not would_give(lambda n: [0.0])([0.0], [0.0], 1)
