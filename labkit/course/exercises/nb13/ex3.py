"""Exercise 13-3: write a linear layer that is cut by its inputs, and add its bias once.

All numbers are small integers, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, rank_simulated, some_rank

#: Rows, outputs, and inputs on each rank, of each call.
CALLS = ((2, 4, 3), (1, 3, 2))
CHANGED = "an argument has changed"


def _layer(call: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x, w and bias of the whole layer: small integers, and a bias that stands out."""
    rows, out, each = CALLS[call]
    x = (torch.arange(rows * each * n) * 5 % 7 - 2.0).view(rows, each * n)
    w = (torch.arange(out * each * n) * 3 % 5 - 1.0).view(out, each * n)
    return x, w, 1000 * (torch.arange(1.0, out + 1) - 2.5)


def _share(call: int, n: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, w, _ = _layer(call, n)
    return x.chunk(n, dim=1)[rank], w.chunk(n, dim=1)[rank]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Give each rank its columns, and look at the arguments afterwards."""
    found: list[Any] = []
    for call in range(len(CALLS)):
        arguments = *_share(call, here.world_size, here.rank), _layer(call, here.world_size)[2]
        x, w, bias = (tensor.to(here.device) for tensor in arguments)
        before = [tensor.clone() for tensor in (x, w, bias)]
        out = answer(x, w, bias)
        kept = all(a.equal(b) for a, b in zip((x, w, bias), before, strict=True))
        found.append(out if kept else CHANGED)
    return found


def _sum(call: int, n: int) -> torch.Tensor:
    x, w, _ = _layer(call, n)
    return x @ w.T


def _bias(call: int, n: int) -> torch.Tensor:
    return _layer(call, n)[2]


def _part(call: int, rank: int, n: int) -> torch.Tensor:
    x, w = _share(call, n, rank)
    return x @ w.T


def expected(n: int) -> list[list[torch.Tensor]]:
    """Compute the whole layer in one process."""
    return [[_sum(call, n) + _bias(call, n) for call in range(len(CALLS))]] * n


def _gives(wrong: Callable[[int, int, int], Any]) -> Predicate:
    """Return the predicate of what a mistake gives: ``wrong(call, rank, n)``."""
    return rank_simulated(lambda rank, n: [wrong(c, rank, n) for c in range(len(CALLS))])


EXERCISE = Exercise(
    id="13-3",
    title="A layer with a bias",
    answer="row_linear",
    trial=trial,
    expected=expected,
    entries=("the output of the first call", "the output of the second call"),
    goals=(Goal("collectives", exactly=lambda n: len(CALLS)),),
    mistakes=(
        Mistake(
            "An argument has changed: bias is the layer's own, and the next call adds it again. "
            "Collect the sum in a tensor of its own.",
            when=some_rank(lambda mine, its: CHANGED in mine),
        ),
        Mistake(
            "Each rank has a part of the sum, from its own inputs, plus the bias. The parts of "
            "all ranks have to be added up.",
            when=_gives(lambda c, r, n: _part(c, r, n) + _bias(c, n)),
        ),
        Mistake(
            "The bias is in the result world_size times: each rank adds it before the parts are "
            "added up. Add it afterwards.",
            when=_gives(lambda c, r, n: _sum(c, n) + n * _bias(c, n)),
        ),
        Mistake(
            "The bias is missing: add it to the sum.",
            when=_gives(lambda c, r, n: _sum(c, n)),
        ),
        Mistake(
            "You average. Each rank has a part of the sum over the inputs, so the parts are "
            "added up.",
            when=_gives(lambda c, r, n: _sum(c, n) / n + _bias(c, n)),
        ),
        Mistake(
            "The shapes do not fit. w has one row per output, as in nn.Linear: multiply x by w.T.",
            raises=r"shapes cannot be multiplied",
        ),
    ),
    hints=(
        "What can this rank compute alone? For every output, a part of the sum over the inputs.",
        "x @ w.T is this rank's part. all_reduce adds up the parts of all ranks, in place.",
        "all_reduce changes its tensor in place, so keep the part in a variable. When is the "
        "bias added, so that it counts once?",
    ),
)
