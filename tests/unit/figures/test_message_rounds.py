"""Rounds are counted as ranks have to wait for each other, and each message is one arrow."""

import pytest

from labkit.base.errors import UsageError
from labkit.figures import message_rounds
from labkit.figures.message_rounds import count_rounds, follow_turns

from .drawn import check_words
from .test_ring import arrows


def server(n):
    """Rank 0 receives from all others, then sends to all of them."""
    others = range(1, n)
    zero = [(None, rank) for rank in others] + [(rank, None) for rank in others]
    return [zero, *([(0, None), (None, 0)] for _ in others)]


def ring(n, steps):
    return [[((rank + 1) % n, (rank - 1) % n)] * steps for rank in range(n)]


def doubling(n):
    return [[(rank ^ d, rank ^ d) for d in (1, 2, 4) if d < n] for rank in range(n)]


@pytest.mark.parametrize(
    ("turns", "rounds"),
    [
        (server(8), 14),
        (ring(8, 14), 14),
        (doubling(8), 3),
        ([[(1, None)], [(None, 0), (2, None)], [(None, 1)]], 2),  # a chain
        ([[(1, None), (1, None)], [(None, 0)] * 2, []], 2),
        ([[(1, None)], []], 1),  # sent, and never received
    ],
)
def test_rounds_are_counted(turns, rounds):
    assert count_rounds(turns) == rounds


def test_a_message_may_wait_for_a_receiver_that_is_busy():
    assert follow_turns(server(4))[:3] == [(1, 0, 0, 0), (2, 0, 0, 1), (3, 0, 0, 2)]


def test_an_arrow_is_a_message_and_a_turn_may_say_more(drawn):
    turns = [[(*turn, "bytes") for turn in own] for own in doubling(8)]
    picture = message_rounds(turns)
    assert picture.text.startswith("3 rounds on 8 ranks\nround 0: 0 to 1, 1 to 0,")
    assert len(arrows(drawn[0])) == 8 + 3 * 8  # a line per rank
    check_words(drawn[0])


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        ([[]], "2 to 16 ranks, not 1"),
        ([[], []], "take 0 rounds"),
        (ring(2, 17), "take 17 rounds"),
        ([[(None, 1), (1, None)], [(None, 0)]], "a message that no rank sends"),
    ],
)
def test_what_cannot_be_drawn_is_refused(turns, problem):
    with pytest.raises(UsageError, match=problem):
        message_rounds(turns)
