"""Exercise 04-1: form the group from the environment, work, and leave: the frame of a script."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import every_rank, rank_simulated, some_rank
from .launched import launched, renumbered

#: What is looked at in each of the two calls.
NAMES = IN_WORK, SUM, RETURNED, LEFT = (
    "get_rank() in work", "the sum", "returned", "in a group afterwards"
)  # fmt: skip
#: How many ranks were at work when this one returned from the first call.
AT_WORK = "ranks at work when this one left"
#: How much longer than the others the last rank works after the sum, in seconds.
LATE_SECONDS = 0.4


class _Work:
    """Add up a number per rank in the group that is there, and remember what the group was.

    The first time the last rank takes longer. The second time the ranks tell one another when each
    had finished its first work, and when its first call had returned.
    """

    def __init__(self, here: Here, first: _Work | None) -> None:
        self.here, self.first = here, first
        self.seen: list[Any] = ["not called", "not called"]
        self.times = [0.0, 0.0]  #: when work ended, and when the call returned
        self.at_work: int | None = None

    def __call__(self) -> float:
        n, rank = dist.get_world_size(), dist.get_rank()
        x = torch.tensor([rank + 1.0], device=self.here.device) * (10 if self.first else 1)
        dist.all_reduce(x)
        self.seen = [rank, x.item()]
        if self.first is None:
            time.sleep(LATE_SECONDS if rank == n - 1 else 0)
        else:
            times = torch.zeros(n, 2, dtype=torch.float64, device=self.here.device)
            times[rank] = torch.tensor(self.first.times, dtype=times.dtype)
            dist.all_reduce(times)
            ended = times[:, 0].tolist()
            self.at_work = sum(end > self.first.times[1] + LATE_SECONDS / 2 for end in ended)
        self.times[0] = time.time()
        return x.item() + 0.5


def trial(answer: Callable[[Callable[[], float]], float], here: Here) -> dict[str, Any]:
    """Run twice, the second time with other numbers in RANK; look at the group from within."""
    found: dict[str, Any] = {name: [] for name in NAMES}
    work = None
    for number in (here.rank, renumbered(here.rank, here.world_size)):
        with launched(RANK=number, WORLD_SIZE=here.world_size):
            work = _Work(here, work)
            returned = answer(work)
            work.times[1] = time.time()
            values = [*work.seen, returned, dist.is_initialized()]
        for name, value in zip(NAMES, values, strict=True):
            found[name].append(value)
    return {**found, AT_WORK: work.at_work if work else None}


def expected(world_size: int) -> list[dict[str, Any]]:
    total = world_size * (world_size + 1) / 2
    return [
        {
            IN_WORK: [rank, renumbered(rank, world_size)],
            SUM: [total, 10 * total],
            RETURNED: [total + 0.5, 10 * total + 0.5],
            LEFT: [False, False],
            AT_WORK: 0,
        }
        for rank in range(world_size)
    ]


EXERCISE = Exercise(
    id="04-1",
    title="Write the template",
    answer="run",
    trial=trial,
    expected=expected,
    seconds=10,
    mistakes=(
        Mistake(
            "dist.barrier() needs the group: call it before destroy_process_group.",
            raises=r"[Dd]efault process group has not been initialized[\s\S]*\bbarrier\(",
        ),
        Mistake(
            "work was called before there was a group: call init_process_group first.",
            raises=r"[Dd]efault process group has not been initialized",
        ),
        Mistake(
            "The group of the first call was still there at the second: destroy_process_group is "
            "missing, or comes after the return.",
            raises=r"initialize the default process group twice",
            when=some_rank(lambda mine, its: mine[LEFT][0]),
        ),
        Mistake(
            "The group took the numbers that you passed, and not those in the environment: leave "
            "rank= and world_size= out of the call.",
            when=rank_simulated(lambda rank, n: [rank, rank], part=lambda found: found[IN_WORK]),
        ),
        Mistake(
            "run has to return what work has returned, unchanged: keep it until you have left the "
            "group.",
            when=every_rank(lambda mine, its: mine[SUM] == its[SUM])
            & some_rank(lambda mine, its: mine[RETURNED] != its[RETURNED]),
        ),
        Mistake(
            "A rank left the group while another was still at work: call dist.barrier() between "
            "work() and destroy_process_group().",
            when=some_rank(lambda mine, its: bool(mine[AT_WORK])),
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
        "Four steps in this order: form the group, work, wait for the other ranks, leave. Which "
        "value do you still need after the last one?",
        "init_process_group needs neither rank nor world size: both are in the environment.",
        "Call barrier and destroy_process_group after work() and before return, so keep the result "
        "in a variable.",
    ),
)
