"""Exercise 04-1: form the group from the environment, work, and leave: the frame of a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import every_rank, parts, some_rank
from .launched import launched, renumbered


class _Work:
    """Add up a number per rank in the group that is there, and remember what the group was."""

    def __init__(self, times: float, device: torch.device) -> None:
        self.times, self.device = times, device
        self.seen: list[Any] = ["not called", "not called"]

    def __call__(self) -> float:
        x = torch.tensor([dist.get_rank() + 1.0], device=self.device) * self.times
        dist.all_reduce(x)
        self.seen = [dist.get_rank(), x.item()]
        return x.item() + 0.5


def trial(answer: Callable[[Callable[[], float]], float], here: Here) -> list[Any]:
    """Run twice, the second time with other numbers in RANK; look at the group from within."""
    found: list[Any] = []
    for times, number in ((1, here.rank), (10, renumbered(here.rank, here.world_size))):
        with launched(RANK=number, WORLD_SIZE=here.world_size):
            work = _Work(times, here.device)
            returned = answer(work)
            found += [*work.seen, returned, dist.is_initialized()]
    return found


def expected(world_size: int) -> list[list[Any]]:
    total = world_size * (world_size + 1) / 2
    return [
        [rank, total, total + 0.5, False,
         renumbered(rank, world_size), 10 * total, 10 * total + 0.5, False]
        for rank in range(world_size)
    ]  # fmt: skip


ENTRIES = tuple(
    f"{which} call: {what}"
    for which in ("1st", "2nd")
    for what in ("get_rank() in work", "the sum in work", "returned", "in a group afterwards")
)

EXERCISE = Exercise(
    id="04-1",
    title="Write the template",
    answer="run",
    trial=trial,
    expected=expected,
    entries=ENTRIES,
    seconds=10,
    mistakes=(
        Mistake(
            "work was called before there was a group: call init_process_group first.",
            raises=r"[Dd]efault process group has not been initialized",
        ),
        Mistake(
            "The group of the first call was still there at the second: destroy_process_group is "
            "missing, or comes after the return.",
            raises=r"initialize the default process group twice",
            when=some_rank(lambda mine, its: mine[3] is True),
        ),
        Mistake(
            "The group took the numbers that you passed, and not those in the environment: leave "
            "rank= and world_size= out of the call.",
            when=lambda yours, expected, n: parts(yours, 4) == list(range(n)) != parts(expected, 4),
        ),
        Mistake(
            "run has to return what work has returned, unchanged: keep it until you have left the "
            "group.",
            when=every_rank(lambda mine, its: mine[1] == its[1])
            & some_rank(lambda mine, its: mine[2] != its[2]),
        ),
        Mistake(
            "NCCL adds up tensors on GPUs only, and the tensor of work is on the CPU here. Leave "
            "the backend out, or name gloo.",
            raises=r"nccl2? requires|NCCL is only|NVIDIA driver|No backend type associated",
        ),
        Mistake(
            "The group waits for more ranks than there are: leave rank= and world_size= away, and "
            "init_process_group reads both from the environment.",
            stuck=r"is more than the \d+ ranks? that (is|are) here",
        ),
        Mistake(
            "Not every rank calls init_process_group, and those that do wait for the others: call "
            "it without a condition.",
            stuck=r"waits? in init_process_group",
        ),
    ),
    setup="import os",
    hints=(
        "Three steps in this order: form the group, work, leave. Which value do you still need "
        "after the last one?",
        "init_process_group needs neither rank nor world size: both are in the environment.",
        "Call destroy_process_group after work() and before return, so keep the result in a "
        "variable.",
    ),
)
