"""Chunks are followed by what was sent and what changed, and sums by whose parts they have."""

import numpy as np
import pytest
import torch

from labkit.base.errors import UsageError
from labkit.figures.chunks import follow_chunks


def ring(n, values=None, size=None):
    """Run both phases of a ring in one process; return states by rank, and messages."""
    values = values or [10**rank for rank in range(n)]
    held = [np.full(size or n, value) for value in values]
    states, messages = [[own.copy()] for own in held], []
    for step in range(2 * (n - 1)):
        chunks = [np.array_split(own, n) for own in held]
        old = [[chunk.copy() for chunk in own] for own in chunks]
        for rank in range(n):
            right = (rank + 1) % n
            chunk = (rank - step) % n  # in the second phase rank + 1 − (step − n + 1): the same
            if step < n - 1:
                chunks[right][chunk] += old[rank][chunk]
            else:
                chunks[right][chunk][:] = old[rank][chunk]
            messages.append((rank, right))
        for rank in range(n):
            states[rank].append(held[rank].copy())
    return states, messages


def counts(step):
    return [[len(parts) for parts in row] for row in step.parts]


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_a_ring_has_one_more_part_per_step_until_it_is_complete(n):
    states, messages = ring(n, [2**rank for rank in range(n)])
    steps = follow_chunks(states, messages)
    assert len(steps) == 2 * (n - 1) + 1
    for k, step in enumerate(steps[:n]):
        assert max(max(row) for row in counts(step)) == k + 1
    assert counts(steps[-1]) == [[n] * n] * n
    for step in steps[1:]:
        arrived = sorted((source, rank) for (rank, _), source in step.arrived.items())
        assert arrived == [(r, (r + 1) % n) for r in range(n)]


def test_equal_values_are_told_apart_by_the_messages():
    states, messages = ring(4, [1.0] * 4)
    steps = follow_chunks(states, messages)
    assert counts(steps[-1]) == [[4] * 4] * 4
    assert [max(map(max, counts(step))) for step in steps] == [1, 2, 3, 4, 4, 4, 4]


def test_uneven_chunks_and_lists_of_chunks_and_tensors():
    states, messages = ring(3, size=7)
    whole = follow_chunks([[torch.tensor(s) for s in own] for own in states], messages)
    parts = follow_chunks([[np.array_split(s, 3) for s in own] for own in states], messages)
    assert whole == parts
    assert counts(whole[-1]) == [[3] * 3] * 3


def test_a_state_that_is_wrong_is_no_sum():
    steps = follow_chunks([[[1, 1], [1, 7]], [[10, 10], [10, 10]]], [(1, 0)])
    assert steps[1].parts[0] == [frozenset({0}), None]
    assert steps[1].arrived == {(0, 1): 1}


def test_a_part_that_is_added_twice_is_no_sum():
    # rank 1 has 11 and is sent rank 0's 1 again
    states = [[[1, 0], [1, 0], [1, 0]], [[10, 0], [11, 0], [12, 0]]]
    steps = follow_chunks(states, [(0, 1), (0, 1)])
    assert steps[1].parts[1][0] == {0, 1}
    assert steps[2].parts[1][0] is None


def test_what_changed_without_a_message_came_from_nowhere():
    steps = follow_chunks([[[1, 1], [1, 11]], [[10, 10], [10, 10]]], [])
    assert steps[1].arrived == {(0, 1): -1}
    assert steps[1].parts[0][1] is None


def test_several_messages_per_step():
    states = [[[1, 2], [11, 22]], [[10, 20], [11, 22]]]
    steps = follow_chunks(states, [(0, 1), (0, 1), (1, 0), (1, 0)])
    assert steps[1].messages == [(0, 1), (0, 1), (1, 0), (1, 0)]
    assert counts(steps[1]) == [[2, 2], [2, 2]]


def test_values_of_long_chunks_are_shortened():
    steps = follow_chunks([[[1, 2, 5, 5], [1, 2, 5, 5]], [[0.5] * 4, [0.5] * 4]], [])
    assert steps[0].values == [["1…", "5"], ["0.5", "0.5"]]


@pytest.mark.parametrize(
    ("states", "messages", "message"),
    [
        ([[[1, 1]], [[1, 1]]], [], "states has no step"),
        ([[[1, 1]] * 2, [[1, 1]] * 3], [], "2 states of one rank, 3 of another"),
        ([[[1, 1]] * 2, [[1, 1]] * 2], [(0, 2)], "messages names rank 2, but states has 2 ranks"),
        ([[[1, 1]] * 3] * 2, [(0, 1)] * 3, "rank 0 sent 3 messages in 2 steps"),
        ([[[torch.ones(1)] * 3] * 2] * 2, [], "a state has 3 chunks for 2 ranks"),
    ],
)
def test_what_does_not_fit_is_refused(states, messages, message):
    with pytest.raises(UsageError, match=message):
        follow_chunks(states, messages)
