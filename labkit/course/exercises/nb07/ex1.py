"""Exercise 07-1: find the largest power of two that scales all ranks' gradients without an
overflow.

Nothing here computes in fp16 itself: powers of two and small integers give the same bits on every
processor, so what a wrong answer gives is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body, edit
from ...compare import number
from ...exercise import Exercise, Goal, Here, Mistake

#: The largest number of fp16.
LARGEST = torch.finfo(torch.float16).max


def _each(yours: Sequence[Any], wanted: Sequence[float]) -> bool:
    """Tell whether every rank has the number that is wanted of it."""
    return all(
        isinstance(mine, float) and math.isclose(mine, its, rel_tol=1e-5)
        for mine, its in zip(yours, wanted, strict=True)
    )


def _peak(rank: int) -> float:
    """Return a rank's largest gradient; it is negative."""
    return {0: -2.0e-3, 1: -2.4e-3}.get(rank, -1.0e-3)


def _gradients(rank: int) -> torch.Tensor:
    return torch.tensor([1e-7, 2e-4 / (rank + 1), _peak(rank), -3e-6])


def _power(top: float, round_: Callable[[float], int] = math.floor) -> float:
    return 2.0 ** round_(math.log2(LARGEST / top))


def _top(n: int) -> float:
    return max(-_peak(r) for r in range(n))


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    """Ask for the largest scale."""
    return number(answer(_gradients(here.rank).to(here.device)))


def expected(n: int) -> list[float]:
    """Look at all ranks' gradients in one process."""
    return [_power(torch.cat([_gradients(r) for r in range(n)]).abs().max().item())] * n


EXERCISE = Exercise(
    id="07-1",
    title="Find the largest scale",
    answer="largest_scale",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "Each rank looks at its own gradients, so the ranks have different scales. The largest "
            "gradient of all ranks decides: all_reduce with MAX.",
            when=lambda yours, expected, n: _each(yours, [_power(-_peak(r)) for r in range(n)]),
            shown_by={
                "its own scale": body(
                    "return 2.0 ** math.floor(math.log2(65504 / gradient.abs().max().item()))"
                )
            },
        ),
        Mistake(
            "The largest gradient here is negative, and it overflows too: take abs() first.",
            when=lambda yours, expected, n: _each(yours, [_power(2e-4)] * n),
            raises=r"^ValueError: (math domain error|expected a positive input)",
            shown_by={"without abs": edit("abs().max", "max")},
        ),
        Mistake(
            "Rounded up, the largest gradient overflows: round the exponent down.",
            when=lambda yours, expected, n: _each(yours, [_power(_top(n), math.ceil)] * n),
            shown_by={"rounds up": edit("math.floor", "math.ceil")},
        ),
        Mistake(
            "That is the largest factor, but not a power of two. A power of two changes only the "
            "exponent, so that no digit is lost.",
            when=lambda yours, expected, n: _each(yours, [LARGEST / _top(n)] * n),
            shown_by={
                "no power of two": edit(
                    "return 2.0 ** math.floor(math.log2(65504 / top.item()))",
                    "return 65504 / top.item()",
                )
            },
        ),
        Mistake(
            "all_reduce adds up by default. For the largest value pass op=dist.ReduceOp.MAX.",
            when=lambda yours, expected, n: _each(
                yours, [_power(sum(-_peak(r) for r in range(n)))] * n
            ),
            shown_by={"the sum of the largest": edit("top, op=dist.ReduceOp.MAX", "top")},
        ),
    ),
    another=body("""
        ends = torch.stack([gradient.max(), -gradient.min()])
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)
        scale = 1.0
        while ends.max().item() * scale * 2 <= torch.finfo(torch.float16).max:
            scale *= 2
        return scale
    """),
    hints=(
        "Only one number per rank matters: the largest absolute value.",
        "all_reduce with op=dist.ReduceOp.MAX gives the largest value of all ranks. The factor "
        "is 65504 divided by it, rounded down to a power of two.",
        "If top is the largest value of all ranks, math.log2(65504 / top.item()) is the "
        "exponent. math.floor rounds it down.",
    ),
)
