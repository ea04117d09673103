"""Exercise 02-4: write a broadcast that passes a tensor on from rank to rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import parts, simulated


def _sources(n: int) -> list[int]:
    """Return the sources of the calls: rank 1 twice, so that no rank is the last of all chains."""
    return [1 % n, 1 % n, n - 1]


def _held(call: int, rank: int) -> torch.Tensor:
    """Return what a rank holds before a call: floats, whole numbers in rows, one float."""
    return (
        torch.tensor([100.0 * rank, 100.0 * rank + 1]),
        torch.tensor([[2**24 + rank, -rank], [rank, 7]]),
        torch.tensor(-1.5 - rank),
    )[call]


def trial(answer: Callable[[torch.Tensor, int], Any], here: Here) -> list[torch.Tensor]:
    results = []
    for call, src in enumerate(_sources(here.world_size)):
        x = _held(call, here.rank).to(here.device)
        answer(x, src)
        dist.barrier()
        results.append(x)
    return results


def expected(world_size: int) -> list[list[torch.Tensor]]:
    return [[_held(call, src) for call, src in enumerate(_sources(world_size))]] * world_size


def _kept(yours: Sequence[Any], expected: Sequence[Any], n: int) -> list[bool]:
    """Return for each rank but the source of the first call whether it has what it had."""
    source = _sources(n)[0]
    return [same(y, _held(0, r)) for r, y in enumerate(parts(yours, 0)) if r != source]


EXERCISE = Exercise(
    id="02-4",
    title="Build a broadcast from messages",
    answer="pass_on",
    trial=trial,
    expected=expected,
    entries=lambda n: [
        f"x after pass_on(x, {src}), {what}"
        for src, what in zip(_sources(n), ("floats", "whole numbers", "one float"), strict=True)
    ],
    forbids=(
        "broadcast",
        "all_reduce",
        "all_gather",
        "reduce",
        "gather",
        "scatter",
        "all_to_all",
        "broadcast_object_list",
        "send_object_list",
    ),
    goals=(Goal("messages sent", most=lambda n: 3),),
    mistakes=(
        Mistake(
            "Ranks wait for one another. The source sends first, every other rank receives first, "
            "and the last rank of the chain does not send at all.",
            stuck=r"waits? in send to",
        ),
        Mistake(
            "That is what rank 0 had. The chain begins at src, whichever rank that is.",
            when=simulated(lambda n: [[_held(call, 0) for call in range(3)]] * n),
        ),
        Mistake(
            "Every rank still has its own numbers in x. Receive into x itself, or copy into it "
            "(x.copy_) what you have received: a new tensor is lost when the function returns.",
            when=lambda yours, expected, n: n > 2 and all(_kept(yours, expected, n)),
        ),
        Mistake(
            "Some ranks still have their own numbers: the chain ends too early, or begins too "
            "late.",
            when=lambda yours, expected, n: any(_kept(yours, expected, n)),
        ),
        Mistake(
            "The result is right, but some rank sends more than one message per call. In a chain "
            "each rank receives from one rank and sends to at most one other.",
            missed="messages sent",
        ),
    ),
    hints=(
        "A chain: the source sends to the next rank, which sends to the next, and so on.",
        "Which rank receives nothing, and which sends nothing? After rank world_size - 1 comes "
        "rank 0, so the last one is the rank before the source.",
        "Count the steps from the source: (rank - src) % world_size is 0 for the source and "
        "world_size - 1 for the last rank.",
    ),
)
