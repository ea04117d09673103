"""Exercise 08-1: find the largest power of two that scales all ranks' gradients without an
overflow.

Nothing here computes in fp16 itself: powers of two and small integers give the same bits on every
processor, so what a wrong answer gives is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...compare import number
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import every_rank, simulated

#: The largest number of fp16.
LARGEST = torch.finfo(torch.float16).max


#: What is asked: the largest gradient of all ranks, in the words of a table.
CASES = (
    "gradients down to -0.0024",
    "gradients up to 2**-8",
    "a gradient of 131,010",
    "a gradient of 131,008",
)


def _gradients(rank: int, n: int) -> list[torch.Tensor]:
    """Return this rank's gradients, as ``CASES`` names them.

    The first one's largest is negative. The second's is a power of two, on the last rank, for which
    65,504 and 65,536 make a difference. The others ask for a scale below 1, the third without a
    dimension; they are twice 65,505 and twice 65,504. The first one's norm would halve the scale.
    """
    peak = {0: -2.0e-3, 1: -2.4e-3}.get(rank, -1.0e-3)
    high = 2.0**-8 if rank == n - 1 else 2.0**-10
    return [
        torch.tensor([1e-7, 2e-4 / (rank + 1), peak, -3e-6, *[0.9 * peak] * 3]),
        torch.tensor([[1e-7, -3e-6], [high, -1e-4]]),
        torch.tensor(131_010.0 if rank == n - 1 else 1.0),
        torch.tensor([[131_008.0 if rank == 0 else -1.0]]),
    ]


#: What is taken for the largest number of a gradient.
Top = Callable[[torch.Tensor], torch.Tensor]


def _power(top: float, largest: float = LARGEST) -> float:
    return 2.0 ** math.floor(math.log2(largest / top))


def _tops(n: int, top: Top = lambda g: g.abs().max()) -> list[list[float]]:
    """Return for each rank the largest gradient, without its sign, of each case."""
    return [[top(g).item() for g in _gradients(r, n)] for r in range(n)]


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any]:
    gradients = [g.to(here.device) for g in _gradients(here.rank, here.world_size)]
    before = [g.clone() for g in gradients]
    scales = [number(answer(g)) for g in gradients]
    return [*scales, all(g.equal(b) for g, b in zip(gradients, before, strict=True))]


def _scales(
    scale: Callable[[float], float] = _power,
    together: Callable[[Sequence[float]], float] = max,
    top: Top = lambda g: g.abs().max(),
) -> Callable[[int], list[list[float]]]:
    """Return what a rule gives that puts the ranks' largest gradients together."""
    return lambda n: (
        [[*(scale(together(case)) for case in zip(*_tops(n, top), strict=True)), True]] * n
    )


expected = _scales()


EXERCISE = Exercise(
    id="08-1",
    title="Find the largest scale",
    answer="largest_scale",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: len(CASES)),),
    entries=(*CASES, "the gradients are as before"),
    mistakes=(
        Mistake(
            "Each rank looks at its own gradients, so the ranks have different scales. The largest "
            "gradient of all ranks decides: all_reduce with MAX.",
            when=simulated(lambda n: [[*map(_power, tops), True] for tops in _tops(n)]),
        ),
        Mistake(
            "The largest gradient of the first case is negative, and it overflows too: take abs() "
            "before max().",
            when=simulated(_scales(top=torch.max)),
        ),
        Mistake(
            "log2 needs a number above 0. Gradients may be negative: take abs() before max(). And "
            "divide with /, since // may round down to 0.",
            raises=r"^ValueError: (math domain error|expected a positive input)",
        ),
        Mistake(
            "That is the scale for the norm of each tensor. Each gradient is multiplied alone: "
            "the largest one decides, gradient.abs().max().",
            when=simulated(_scales(top=torch.norm)),
        ),
        Mistake(
            "Rounded up, the largest gradient overflows: round the exponent down.",
            when=simulated(_scales(lambda top: 2.0 ** math.ceil(math.log2(LARGEST / top)))),
        ),
        Mistake(
            "That is the largest factor, but not a power of two. A power of two changes only the "
            "exponent, so that no digit is lost.",
            when=simulated(_scales(lambda top: LARGEST / top)),
        ),
        Mistake(
            "all_reduce adds up by default. For the largest value pass op=dist.ReduceOp.MAX.",
            when=simulated(_scales(together=sum)),
        ),
        Mistake(
            "That is the scale for the smallest of the ranks' largest gradients; the largest of "
            "them overflows first. Combine the largest gradients with MAX, or the ranks' scales "
            "with MIN.",
            when=simulated(_scales(together=min)),
        ),
        Mistake(
            "The scale is right, but gradient is changed: abs() makes a new tensor, abs_() does "
            "not.",
            when=every_rank(lambda mine, its: mine == [*its[:-1], False]),
        ),
        Mistake(
            "A gradient of 2**-8 becomes 65,536, which is over 65,504: the limit is fp16's largest "
            "number, not the power of two above it.",
            when=simulated(_scales(lambda top: _power(top, 65536))),
        ),
    ),
    hints=(
        "Only one number per rank matters: the largest absolute value.",
        "all_reduce with op=dist.ReduceOp.MAX gives the largest value of all ranks. The factor "
        "is 65504 divided by it, rounded down to a power of two.",
        "If top is the largest value of all ranks, math.log2(65504 / top.item()) is the "
        "exponent. math.floor rounds it down.",
    ),
)
