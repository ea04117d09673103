"""An answer that fits two ranks only is found on one, where a right answer works alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import labkit
from labkit.course import catalogue, check
from tests.support.cells import run_cell

ANSWER = """def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= {}"""


@pytest.fixture(scope="module")
def lab2() -> Iterator[labkit.Lab]:
    with labkit.start(2) as lab:
        yield lab


@pytest.mark.parametrize(
    ("divisor", "fewest", "name"),
    [("2", 1, "one size"), ("world_size", 1, "passed"), ("2", 2, "passed")],
)
def test_two_ranks_are_tried_as_one(lab2: labkit.Lab, divisor: str, fewest: int, name: str) -> None:
    run_cell(lab2, ANSWER.format(divisor))
    exercise = catalogue.find("00-1")
    assert exercise.fewest == 1
    assert check.examine(replace(exercise, fewest=fewest))[1].name == name
    run_cell(lab2, "x = torch.ones(1)\ndist.all_reduce(x)")
    assert lab2["x"] == [2.0] * 2
