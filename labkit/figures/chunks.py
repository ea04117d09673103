"""Follow chunks from rank to rank: which one arrived where, and whose parts a sum has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.errors import UsageError
from .values import number, tensors

#: A rank and a chunk of it.
Cell = tuple[int, int]
#: The ranks whose own chunk is part of a sum, None where it is no sum of such.
Parts = frozenset[int] | None


@dataclass
class Step:
    """The chunks after a step, and how they came about; ``values`` and ``parts`` by rank."""

    values: list[list[str]]
    parts: list[list[Parts]]
    #: chunk that arrived -> rank that it came from, -1 where that is not known
    arrived: dict[Cell, int] = field(default_factory=dict)
    #: sender and receiver of each message, in the order of the senders
    messages: list[tuple[int, int]] = field(default_factory=list)


def follow_chunks(states: Sequence[Sequence[Any]], messages: Iterable[Sequence[Any]]) -> list[Step]:
    """Return the chunks before the first step and after each.

    A chunk that has changed came from a rank that sent to its rank in this step: it is that
    rank's chunk of the same number, alone or added to what was there.

    Parameters
    ----------
    states
        For each rank its tensor before the first step and after each: split evenly, or a list of
        as many chunks as there are ranks.
    messages
        (sender, receiver, …) in the order in which each rank sent them; every rank sends equally
        many in each step.
    """
    n = len(states)
    lengths = sorted({len(own) for own in states})
    if len(lengths) > 1:
        raise UsageError(f"states has {lengths[0]} states of one rank, {lengths[-1]} of another")
    if lengths[0] < 2:
        raise UsageError("states has no step: give what a rank held before and after each step")
    held = [[_split(state, n) for state in own] for own in states]
    count = lengths[0] - 1
    sent = _by_step(messages, n, count)
    parts: list[list[Parts]] = [[frozenset({rank})] * n for rank in range(n)]
    steps = [Step([[_show(chunk) for chunk in own[0]] for own in held], parts)]
    for k in range(1, count + 1):
        old = [own[k - 1] for own in held]
        step = Step([[_show(chunk) for chunk in own[k]] for own in held], [], {}, sent[k - 1])
        for rank in range(n):
            row = list(parts[rank])
            for chunk in range(n):
                new = held[rank][k][chunk]
                if np.array_equal(new, old[rank][chunk], equal_nan=new.dtype.kind == "f"):
                    continue
                step.arrived[rank, chunk], row[chunk] = _origin(
                    new, rank, chunk, old, parts, step.messages
                )
            step.parts.append(row)
        parts = step.parts
        steps.append(step)
    return steps


def _split(state: Any, n: int) -> list[np.ndarray]:
    """Return the n chunks of a rank."""
    arrays = [array.reshape(-1) for array in tensors(state)]
    if len(arrays) == n and n > 1:
        return arrays
    if len(arrays) != 1:
        raise UsageError(f"a state has {len(arrays)} chunks for {n} ranks: give one per rank")
    return np.array_split(arrays[0], n)


def _by_step(messages: Iterable[Sequence[Any]], n: int, count: int) -> list[list[tuple[int, int]]]:
    """Return the messages of each step."""
    pairs = [(int(message[0]), int(message[1])) for message in messages]
    if strange := {rank for pair in pairs for rank in pair if not 0 <= rank < n}:
        raise UsageError(f"messages names rank {min(strange)}, but states has {n} ranks")
    totals = Counter(sender for sender, _ in pairs)
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    seen: Counter[int] = Counter()
    for sender, receiver in pairs:
        each = max(1, totals[sender] // count)
        step = seen[sender] // each
        if step >= count:
            raise UsageError(
                f"rank {sender} sent {totals[sender]} messages in {count} steps: give the messages "
                "of the cell that took these steps"
            )
        found[step].append((sender, receiver))
        seen[sender] += 1
    return [sorted(step) for step in found]


def _origin(
    new: np.ndarray, rank: int, chunk: int, old: Sequence[Sequence[np.ndarray]],
    parts: Sequence[Sequence[Parts]], messages: Sequence[tuple[int, int]],
) -> tuple[int, Parts]:  # fmt: skip
    """Return who sent what a rank has now as this chunk, and whose parts it holds."""
    own, mine = old[rank][chunk], parts[rank][chunk]
    senders = list(dict.fromkeys(sender for sender, receiver in messages if receiver == rank))
    for sender in senders:
        theirs = parts[sender][chunk]
        apart = mine is not None and theirs is not None and not mine & theirs
        if apart and _close(new, own + old[sender][chunk]):
            assert mine is not None
            assert theirs is not None
            return sender, mine | theirs
    for sender in senders:
        if _close(new, old[sender][chunk]):
            return sender, parts[sender][chunk]
    return (senders[0] if len(senders) == 1 else -1), None


def _show(chunk: np.ndarray) -> str:
    """Write the value of a chunk; the first one, and dots, if it has several."""
    if not chunk.size:
        return "–"
    same = bool((chunk == chunk[0]).all())
    return number(chunk[0].item()) + ("" if same else "…")


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-4, atol=1e-6))
