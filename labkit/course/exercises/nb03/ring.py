"""What the exercises of the ring share.

Rank r brings 10**r times something, so that the digits of a sum say which ranks are in it, and how
often. What usually goes wrong is simulated in one process and compared with what came back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import NOT_TRIED, Goal, Here, Mistake
from ...mistakes import Predicate, near

#: Bytes of an element of the trials' integers, and of their floats.
ITEM, FLOAT = 8, 4
#: Lengths of chunks, over and over: a buffer that is cut to another chunk's length does not fit.
LENGTHS = (2, 1, 3)
#: What is late on rank 0, in seconds, so that a message arrives before the next one is sent.
LATE = 0.02

#: What an answer put into the list of chunks instead of into the tensor.
IN_PLACE = (
    "The tensor is unchanged. chunks[i] = chunks[i] + … puts a new tensor into the list: change "
    "the chunk itself, with += or copy_, or receive into it."
)
#: What labkit says when ranks wait for one that was not asked to take part.
ENDED = r"which has (?:ended|finished)"
#: What torch says when tensors of different lengths are added or copied.
UNEQUAL = r"(?:The size of tensor a|output with shape)"

#: chunk(rank, step, n): which chunk a rank sends or changes in a step.
Chunk = Callable[[int, int, int], int]
#: What each rank holds: its chunks.
Held = list[list[torch.Tensor]]


def power_of_ten(rank: int, length: int) -> torch.Tensor:
    return torch.full((length,), 10**rank)


def cut(x: torch.Tensor, lengths: Sequence[int]) -> list[torch.Tensor]:
    """Cut a tensor into chunks of these lengths: views of it."""
    return list(x.split(list(lengths)))


def uneven(n: int) -> list[int]:
    """Return the lengths of n chunks that are not all equal."""
    return [LENGTHS[i % len(LENGTHS)] for i in range(n)]


def play_ring(held: Held, out: Chunk, into: Chunk, *, add: bool) -> list[torch.Tensor]:
    """Play n - 1 steps of a ring in one process; return each rank's tensor.

    Parameters
    ----------
    held
        The chunks of each rank at the beginning.
    out, into
        Which chunk a rank sends, and which one what it receives goes to.
    add
        Whether that is added, or replaces the chunk.
    """
    n = len(held)
    for step in range(n - 1):
        sent = [held[rank][out(rank, step, n) % n].clone() for rank in range(n)]
        for rank in range(n):
            place = into(rank, step, n) % n
            held[rank][place] = sent[rank - 1] + (held[rank][place] if add else 0)
    return [torch.cat(chunks) for chunks in held]


def first_is(simulate: Callable[[int], Sequence[torch.Tensor]]) -> Predicate:
    """Return the predicate of a mistake that gives ``simulate(n)`` in the first part of a trial."""

    @Predicate
    def when(yours: Any, expected: Any, n: int) -> bool:
        wrong = list(simulate(n))
        return near([y[0] for y in yours], wrong) and not near([e[0] for e in expected], wrong)

    return when


#: A trial's tensor: ``bring(rank, n)``.
Bring = Callable[[int, int], torch.Tensor]


def try_steps(
    run: Callable[[list[torch.Tensor]], None],
    here: Here,
    even: Bring,
    uneven_x: Bring,
    right: Callable[[int], Sequence[torch.Tensor]],
) -> list[Any]:
    """Run all steps with equal chunks; if that gave ``right(n)``, with unequal ones in a smaller
    ring."""
    n, m = here.world_size, here.world_size - 1
    x = even(here.rank, n).to(here.device)
    run(cut(x, [1] * n))
    if here.rank >= m:
        return [x, None]
    if not x.cpu().equal(right(n)[here.rank]):
        return [x, NOT_TRIED]
    y = uneven_x(here.rank, m).to(here.device)
    run(cut(y, uneven(m)))
    return [x, y]


def step_labels(n: int) -> list[str]:
    return [f"x after all steps (n = {n})", f"unequal chunks (n = {n - 1})"]


def _most_bytes(n: int) -> int:
    """Return the bytes of the rank that sends most."""
    lengths = uneven(n - 1)
    return (n - 1) * ITEM + (sum(lengths) - min(lengths, default=0)) * FLOAT


#: What these steps may cost.
STEP_GOALS = (
    Goal("messages sent", most=lambda n: (n - 1) + max(n - 2, 0)),
    Goal("bytes sent", most=_most_bytes),
)

#: How a rank talks to its neighbours in all of these: defined by the notebook.
EXCHANGE = """
def exchange(outgoing, incoming, n):
    right, left = (rank + 1) % n, (rank - 1) % n
    receive = dist.P2POp(dist.irecv, incoming, left)
    send = dist.P2POp(dist.isend, outgoing, right)
    for work in dist.batch_isend_irecv([receive, send]):
        work.wait()
"""

#: A mistake of all of these: not the ring of n ranks that was asked for.
OUTSIDE = Mistake(
    "Ranks wait for a rank that takes no part, or has stopped taking part. The ring has n ranks, "
    "and world_size may be larger: pass n, or len(chunks), to exchange. Every rank of the ring "
    "takes the same number of steps.",
    stuck=ENDED,
    raises=r"exchange\(\) missing 1 required positional argument: 'n'",
)
SENDS_FIRST = Mistake(
    "Every rank sends before it receives, and send may return only when its message is "
    "received. Use exchange, which sends and receives together.",
    stuck=r"sends before it receives",
)


def too_small(short: str, more: str = "") -> Mistake:
    """Return the mistake of a tensor that cannot hold what arrives: of another type, or short.

    ``more`` is an error by which it shows, too.
    """
    return Mistake(
        "What arrives does not fit into the tensor that you receive into. Either it has another "
        "type than x (torch.empty and torch.zeros make float32, torch.empty_like keeps the type), "
        f"or {short}. (Gloo ends a process that receives more than its tensor holds.)",
        raises="|".join(filter(None, ["Died: signal 6", more])),
    )
