"""Race all-reduces against each other, by rules that are fixed before the start.

A function with a wrong sum is not timed. One call warms up. The contenders alternate, so that a
busy moment of the machine hits all of them; the slowest rank of each repetition counts, and the
time of every repetition is returned.

A contender is a function ``f(x, n)`` that all n ranks of a group call. It returns the sum of their
``x``, or leaves it in ``x`` and returns None.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist

Contender = Callable[[torch.Tensor, int], torch.Tensor | None]
REPETITIONS = 11


def race(
    contenders: Mapping[str, Contender],
    sizes: Sequence[int],
    device: torch.device,
    group: dist.ProcessGroup | None = None,
    repetitions: int = REPETITIONS,
    before: Callable[[], object] | None = None,
) -> dict[str, list[list[float]]]:
    """Return seconds by contender, size (in bytes) and repetition, of those whose sum is right."""
    fair = {name: f for name, f in contenders.items() if adds_up(f, device, group)}
    times: dict[str, list[list[float]]] = {name: [] for name in fair}
    for size in sizes if fair else []:
        x = torch.zeros(size // 4, device=device)
        columns = clock(list(fair.values()), x, group, repetitions, before)
        for name, column in zip(fair, columns, strict=True):
            times[name].append(column)
    return times


def clock(
    functions: Sequence[Contender],
    x: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    repetitions: int = REPETITIONS,
    before: Callable[[], object] | None = None,
) -> list[list[float]]:
    """Return the seconds of each repetition, for each function; all ranks of the group call this.

    ``before`` is called before each start of the clock.
    """
    for function in functions:
        seconds(function, x, group, before)  # to warm up
    rows = [[seconds(f, x, group, before) for f in functions] for _ in range(repetitions)]
    slowest = torch.tensor(rows, device=x.device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return slowest.T.tolist()


def seconds(
    function: Contender,
    x: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    before: Callable[[], object] | None = None,
) -> float:
    """Time one call, from a barrier until the result can be read (on a GPU calls return before)."""
    dist.barrier(group)
    if before is not None:
        before()
    start = time.perf_counter()
    function(x, dist.get_world_size(group))
    x.view(-1)[0].item()
    return time.perf_counter() - start


def adds_up(
    contender: Contender, device: torch.device, group: dist.ProcessGroup | None = None
) -> bool:
    """Return whether a contender's sum is right on every rank of the group."""
    expected = torch.arange(1000.0, device=device) * (dist.get_rank(group) + 1)
    mine = expected.clone()
    total = contender(mine, dist.get_world_size(group))
    dist.all_reduce(expected, group=group)
    right = expected.equal(mine if total is None else total)
    everywhere = torch.tensor([int(right)], device=device)
    dist.all_reduce(everywhere, dist.ReduceOp.MIN, group=group)
    return bool(everywhere.item())
