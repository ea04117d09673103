"""What the exercises of the ring share.

Rank r brings the number 10**r, so that the digits of a sum say which ranks are in it, and how
often. What usually goes wrong is played through in one process and compared with what came back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

#: What an answer must not call: it is built from sends and receives.
COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)
#: Bytes of an element in the trials.
ITEM = 8

#: What an answer put into the list of chunks instead of into the tensor.
IN_PLACE = (
    "Your tensor is as it was before. chunks[i] = chunks[i] + … puts a new tensor into the list; "
    "change the chunk itself, with += or copy_, or receive into it."
)
#: What is said of ranks that all send first.
SENDS_BEFORE = r"Cause: Every one of them sends before it receives"
SENDS_FIRST = (
    "Every rank sends before it receives, and send returns only when its message is taken. Use "
    "exchange, which sends and receives together."
)

#: chunk(rank, step, n): which chunk a rank sends or changes in a step.
Chunk = Callable[[int, int, int], int]


def power_of_ten(rank: int, length: int) -> torch.Tensor:
    """Return ``length`` times 10**rank."""
    return torch.full((length,), 10**rank)


def cut(x: torch.Tensor, n: int) -> list[torch.Tensor]:
    """Cut a tensor into n chunks, as the notebook does: views, of which none is much longer."""
    return list(x.tensor_split(n))


def on_some_rank(yours: Sequence[Any], kind: Callable[[Any], bool]) -> bool:
    """Tell whether the result of some rank is of this kind."""
    return any(kind(y) for y in yours)


def play_ring(
    start: Callable[[int, int], torch.Tensor], out: Chunk, into: Chunk, *, add: bool
) -> Callable[[int], list[torch.Tensor]]:
    """Play n - 1 steps of a ring in one process.

    Parameters
    ----------
    start
        ``start(rank, n)``: what a rank begins with, one number a chunk.
    out, into
        Which chunk a rank sends, and which one what it receives goes to.
    add
        Whether that is added, or replaces the chunk.
    """

    def play(n: int) -> list[torch.Tensor]:
        held = [start(rank, n) for rank in range(n)]
        for step in range(n - 1):
            sent = [held[rank][out(rank, step, n) % n].clone() for rank in range(n)]
            for rank in range(n):
                place = into(rank, step, n) % n
                held[rank][place] = sent[rank - 1] + (held[rank][place] if add else 0)
        return held

    return play


#: How a rank talks to its neighbours in all of these: defined by the notebook.
EXCHANGE = """
n = world_size
right, left = (rank + 1) % n, (rank - 1) % n


def exchange(outgoing, incoming):
    receive = dist.P2POp(dist.irecv, incoming, left)
    send = dist.P2POp(dist.isend, outgoing, right)
    for work in dist.batch_isend_irecv([receive, send]):
        work.wait()
"""
