"""The exercises of notebook 03: choose a collective and use it well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .device import here
from .exercise import Exercise, Goal, Mistake, failed

FLOAT = 4  #: bytes


def _tensors(yours: Sequence[Any], wanted: Sequence[torch.Tensor]) -> bool:
    """Tell whether every rank has the tensor that is wanted of it."""
    return all(
        isinstance(mine, torch.Tensor) and mine.shape == its.shape and torch.allclose(mine, its)
        for mine, its in zip(yours, wanted, strict=True)
    )


def _uneven(rank: int) -> torch.Tensor:
    """Return rank + 1 numbers: 10, 20 21, 30 31 32, …"""
    return torch.arange(rank + 1.0) + 10 * (rank + 1)


# -- 03-1 ---------------------------------------------------------------------------------------


def trial_mean(answer: Callable[[torch.Tensor], Any], rank: int, world_size: int) -> Any:
    """Average samples of which every rank has another number."""
    value = answer(_uneven(rank).to(here()))
    return value if value is None else float(value)


def expected_mean(world_size: int) -> list[float]:
    """Average all samples in one process."""
    return [torch.cat([_uneven(r) for r in range(world_size)]).mean().item()] * world_size


def _close(yours: Sequence[Any], wanted: float) -> bool:
    return all(isinstance(y, float) and abs(y - wanted) < 1e-3 for y in yours)


def _mean_of_means(n: int) -> float:
    return sum(_uneven(r).mean().item() for r in range(n)) / n


# -- 03-2 ---------------------------------------------------------------------------------------


def _matrix(world_size: int) -> torch.Tensor:
    return torch.tensor([[10.0 * r + c for c in range(world_size)] for r in range(world_size)])


def trial_column(
    answer: Callable[[torch.Tensor], torch.Tensor], rank: int, world_size: int
) -> torch.Tensor:
    """Give this rank's row of a matrix, ask for its column."""
    return answer(_matrix(world_size)[rank].to(here()))


def expected_column(world_size: int) -> list[torch.Tensor]:
    """Cut the matrix into columns in one process."""
    return list(_matrix(world_size).T)


# -- 03-3 ---------------------------------------------------------------------------------------


def trial_gather(
    answer: Callable[[torch.Tensor], torch.Tensor], rank: int, world_size: int
) -> torch.Tensor:
    """Gather tensors of unequal length."""
    return answer(_uneven(rank).to(here()))


def expected_gather(world_size: int) -> list[torch.Tensor]:
    """Put all of them together in one process."""
    return [torch.cat([_uneven(r) for r in range(world_size)])] * world_size


def _padded(n: int) -> torch.Tensor:
    rows = torch.zeros(n, n)
    for r in range(n):
        rows[r, : r + 1] = _uneven(r)
    return rows


# -- 03-4 ---------------------------------------------------------------------------------------


def _source(world_size: int) -> int:
    return min(1, world_size - 1)


def trial_broadcast(
    answer: Callable[[torch.Tensor, int], Any], rank: int, world_size: int
) -> torch.Tensor:
    """Broadcast from rank 1, in place."""
    x = torch.tensor([100.0 * rank, 100.0 * rank + 1], device=here())
    answer(x, _source(world_size))
    dist.barrier()
    return x


def expected_broadcast(world_size: int) -> list[torch.Tensor]:
    """Copy the source's tensor in one process."""
    first = 100.0 * _source(world_size)
    return [torch.tensor([first, first + 1])] * world_size


EXERCISES = (
    Exercise(
        id="03-1",
        title="Average uneven shares with one collective",
        answer="mean_of_all",
        trial=trial_mean,
        expected=expected_mean,
        goals=(Goal("collectives", exactly=lambda n: 1),),
        mistakes=(
            Mistake(
                "That is the mean of the ranks' means: a rank with one sample counts as much as a "
                "rank with four. Add up the samples, and how many there are.",
                when=lambda yours, expected, n: _close(yours, _mean_of_means(n)),
            ),
            Mistake(
                "The sum is divided by the number of ranks; divide it by the number of samples on "
                "all ranks.",
                when=lambda yours, expected, n: _close(
                    yours, sum(_uneven(r).sum().item() for r in range(n)) / n),
            ),
            Mistake(
                "Each rank averages its own samples only: nothing has crossed between ranks.",
                when=lambda yours, expected, n: all(
                    isinstance(y, float) and abs(y - _uneven(r).mean().item()) < 1e-3
                    for r, y in enumerate(yours)),
            ),
            Mistake(
                "The ranks bring tensors of different lengths to the collective. Bring something "
                "of the same shape on every rank: a sum and a count.",
                when=lambda yours, expected, n: failed(yours, "Deadlock", "Died", "RuntimeError"),
            ),
            Mistake(
                "The result is right, but it takes two collectives: put the sum and the count "
                "into one tensor.",
                missed="collectives",
            ),
        ),
        hints=(
            "The mean of all samples is their sum, divided by how many there are. Both are sums "
            "over the ranks.",
            "One tensor can carry both: torch.stack([samples.sum(), …]), or a list of two numbers.",
            "t = torch.tensor([samples.sum(), len(samples)], device=device); all_reduce t; return "
            "its first number divided by its second.",
        ),
    ),
    Exercise(
        id="03-2",
        title="Turn rows into columns",
        answer="my_column",
        trial=trial_column,
        expected=expected_column,
        forbids=("all_gather", "all_gather_object"),
        goals=(
            Goal("collectives", exactly=lambda n: 1),
            Goal("bytes sent", most=lambda n: FLOAT * n),
        ),
        mistakes=(
            Mistake(
                "That is the row that the rank began with: the result of the call is in its first "
                "argument.",
                when=lambda yours, expected, n: _tensors(yours, list(_matrix(n))),
            ),
            Mistake(
                "The numbers are right, the shape is not: put them together into one tensor of n "
                "numbers (torch.cat).",
                when=lambda yours, expected, n: all(
                    torch.as_tensor(y).numel() == n
                    and torch.as_tensor(y).flatten().equal(e)
                    for y, e in zip(yours, expected, strict=True)),
            ),
            Mistake(
                "The tensor for the result is still as it was made: it goes first in the call, "
                "what you send second.",
                when=lambda yours, expected, n: all(not y.any() for y in yours),
            ),
            Mistake(
                "Every rank has the sum of the rows: an all_reduce adds, and here numbers only "
                "change places.",
                when=lambda yours, expected, n: _tensors(yours, [_matrix(n).sum(0)] * n),
            ),
        ),
        hints=(
            "Rank i has piece j for rank j. Which of the nine collectives takes it there?",
            "dist.all_to_all_single(output, input) cuts its input into one piece a rank.",
            "column = torch.empty_like(row); then dist.all_to_all_single(column, row).",
        ),
    ),
    Exercise(
        id="03-3",
        title="Gather tensors of unequal length",
        answer="gather_uneven",
        trial=trial_gather,
        expected=expected_gather,
        forbids=("all_gather_object",),
        goals=(Goal("collectives", most=lambda n: 2),),
        mistakes=(
            Mistake(
                "The padding is still there: cut each piece to the length that its rank had.",
                when=lambda yours, expected, n: _tensors(yours, [_padded(n).flatten()] * n),
            ),
            Mistake(
                "Each rank cuts all pieces to its own length; every piece has a length of its own.",
                when=lambda yours, expected, n: _tensors(
                    yours, [_padded(n)[:, : r + 1].flatten() for r in range(n)]),
            ),
            Mistake(
                "Each rank has its own numbers only.",
                when=lambda yours, expected, n: _tensors(yours, [_uneven(r) for r in range(n)]),
            ),
            Mistake(
                "An all_gather needs the same shape on every rank, and here each brings another "
                "length. Agree on the longest first, and fill up to it.",
                when=lambda yours, expected, n: failed(yours),
            ),
        ),
        hints=(
            "An all_gather moves equal shapes only. Who knows how long the others' tensors are?",
            "First gather the lengths (one number a rank). Then fill up to the longest and gather.",
            "padded = torch.zeros(max(lengths), device=device); padded[: len(x)] = x; gather that, "
            "cut piece i to lengths[i], and torch.cat them.",
        ),
        seconds=30,
    ),
    Exercise(
        id="03-4",
        title="Build a broadcast of messages",
        answer="pass_on",
        trial=trial_broadcast,
        expected=expected_broadcast,
        forbids=("broadcast", "all_reduce", "all_gather", "scatter", "all_to_all",
                 "broadcast_object_list", "send_object_list"),
        goals=(Goal("messages sent", most=lambda n: 1),),
        mistakes=(
            Mistake(
                "Ranks wait for one another. The source sends first, everybody else receives "
                "first, and the last one in the chain does not send at all.",
                when=lambda yours, expected, n: failed(yours, "Deadlock"),
            ),
            Mistake(
                "That is what rank 0 had. The chain begins at src, wherever that is.",
                when=lambda yours, expected, n: _tensors(
                    yours, [torch.tensor([0.0, 1.0])] * n),
            ),
            Mistake(
                "Some ranks still have their own numbers: the chain ends too early, or begins too "
                "late.",
                when=lambda yours, expected, n: any(
                    not failed([y]) and not y.equal(expected[0])
                    and y.equal(torch.tensor([100.0 * r, 100.0 * r + 1]))
                    for r, y in enumerate(yours)),
            ),
            Mistake(
                "It works, but the source sends n − 1 messages, one after the other. Let each rank "
                "pass it on to the next one.",
                missed="messages sent",
            ),
        ),
        hints=(
            "A chain: the source sends to the next rank, which sends to the next, and so on.",
            "Count from the source: step = (rank - src) % world_size is 0 for the source and "
            "world_size - 1 for the last.",
            "If step > 0, receive from the rank before; if step < world_size - 1, send to the rank "
            "after. Both neighbours with % world_size.",
        ),
    ),
)  # fmt: skip
