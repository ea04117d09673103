"""Stretches of time add up."""

import random

import pytest

from labkit.wire.recording import common, length, union, without


def test_union_joins_what_touches_and_drops_what_is_empty():
    assert union([(4, 6), (0, 2), (1, 3), (3, 4), (9, 9), (8, 7)]) == [(0, 6)]
    assert union([]) == []


def test_common_and_without():
    first, second = [(0, 3), (5, 9)], [(2, 6), (8, 10)]
    assert common(first, second) == [(2, 3), (5, 6), (8, 9)]
    assert without(first, second) == [(0, 2), (6, 8)]
    assert without(first, []) == first
    assert without([(0, 9)], [(2, 3), (5, 6)]) == [(0, 2), (3, 5), (6, 9)]


@pytest.mark.parametrize("seed", range(20))
def test_they_agree_with_counting_units(seed):
    draw = random.Random(seed)
    first, second = (
        [(a, a + draw.randrange(6)) for a in (draw.randrange(40) for _ in range(8))]
        for _ in range(2)
    )
    one, two = ({t for a, b in ours for t in range(a, b)} for ours in (first, second))
    assert length(first) == len(one)
    assert length(common(first, second)) == len(one & two)
    assert length(without(first, second)) == len(one - two)
