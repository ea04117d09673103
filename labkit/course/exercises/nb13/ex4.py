"""Exercise 13-4: write a linear layer that is cut by its outputs, with its gradients.

All numbers are small integers, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, rank_simulated, simulated

#: Rows, inputs, and outputs of each rank, of each call.
CALLS = ((2, 3, 2), (1, 4, 1))
GIVES = ("output", "x.grad", "w.grad")
#: What each number of x gets from outside the layer.
OUTSIDE = 5.0
#: What the notebook defines above the exercise.
ADD_UP = """
    def add_up(part, group):
        total = part.clone()
        dist.all_reduce(total.detach(), group=group)
        return total
"""


def _layer(call: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x, the whole w, and the gradient of the output that the loss gives."""
    rows, inputs, each = CALLS[call]
    x = (torch.arange(rows * inputs) * 3 % 7 - 2.0).view(rows, inputs)
    w = (torch.arange(each * n * inputs) * 5 % 11 - 4.0).view(each * n, inputs)
    return x, w, (torch.arange(rows * each * n) * 7 % 9 - 3.0).view(rows, each * n)


def trial(answer: Callable[..., Any], here: Here) -> list[dict[str, Any]]:
    """Go forward and backward with this rank's rows of the weight."""
    found = []
    for call in range(len(CALLS)):
        x, w, slope = (tensor.to(here.device) for tensor in _layer(call, here.world_size))
        own = w.chunk(here.world_size, dim=0)[here.rank].clone()
        x.requires_grad_()
        own.requires_grad_()
        out = answer(x, own)
        if out.shape == slope.shape:
            ((out * slope).sum() + OUTSIDE * x.sum()).backward()
        found.append(dict(zip(GIVES, (out.detach(), x.grad, own.grad), strict=True)))
    return found


def _each(
    n: int, gives: Callable[[int, int], tuple[torch.Tensor | None, ...]]
) -> list[list[dict[str, Any]]]:
    """Return what each rank gets in each call: what ``gives(call, rank)`` has, by name."""
    return [
        [dict(zip(GIVES, gives(call, rank), strict=True)) for call in range(len(CALLS))]
        for rank in range(n)
    ]


def _would(
    of_x: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor] = (
        lambda whole, part, n: whole + OUTSIDE
    ),
    times_w: Callable[[int], int] = lambda n: 1,
) -> Callable[[int], list[list[dict[str, Any]]]]:
    """Return what each rank gets in each call: x.grad as ``of_x(whole, part, n)`` makes it of the
    gradient through all outputs and through this rank's, w.grad multiplied by ``times_w(n)``."""

    def simulate(n: int) -> list[list[dict[str, Any]]]:
        def one(call: int, rank: int) -> tuple[torch.Tensor, ...]:
            x, w, slope = _layer(call, n)
            mine, slopes = w.chunk(n, dim=0)[rank], slope.chunk(n, dim=1)[rank]
            return x @ w.T, of_x(slope @ w, slopes @ mine, n), times_w(n) * slopes.T @ x

        return _each(n, one)

    return simulate


def expected(n: int) -> list[list[dict[str, Any]]]:
    """Compute the whole layer and its gradients in one process."""
    return _would()(n)


def _detached(n: int) -> list[list[dict[str, Any]]]:
    """Return what each rank gets if the output is cut off from x and w."""

    def one(call: int, rank: int) -> tuple[torch.Tensor | None, ...]:
        x, w, _ = _layer(call, n)
        return x @ w.T, torch.full_like(x, OUTSIDE), None

    return _each(n, one)


def _output_is(put: Callable[[list[torch.Tensor], int], Any]) -> Predicate:
    """Return the predicate of putting the ranks' outputs together like that, whatever the
    gradients."""

    def simulate(rank: int, n: int) -> list[Any]:
        layers = [_layer(call, n) for call in range(len(CALLS))]
        return [put([x @ own.T for own in w.chunk(n, dim=0)], rank) for x, w, _ in layers]

    return rank_simulated(simulate, lambda calls: [one["output"] for one in calls])


EXERCISE = Exercise(
    id="13-4",
    title="Cut by outputs",
    answer="column_linear",
    setup=ADD_UP,
    trial=trial,
    expected=expected,
    entries=("the first call", "the second call"),
    goals=(Goal("collectives", exactly=lambda n: 2 * len(CALLS)),),
    mistakes=(
        Mistake(
            "x.grad is the gradient through this rank's own outputs: a part of a sum. The parts of "
            "all ranks have to be added up in backward, where x enters the layer.",
            when=simulated(_would(lambda whole, part, n: part + OUTSIDE)),
        ),
        Mistake(
            "The ranks' outputs stand below each other. They are columns of one output: put them "
            "side by side.",
            when=_output_is(lambda outs, rank: torch.cat(outs)),
        ),
        Mistake(
            "No gradient goes back through the output, and w.grad is None: all_gather copies "
            "numbers and leaves nothing for autograd. This rank's own part must go into the "
            "output itself.",
            when=simulated(_detached),
        ),
        Mistake(
            "The gradients are world_size times too large. Every rank computes the same loss, so "
            "the output's gradient is whole on each rank: for w take its columns as they are.",
            when=simulated(_would(lambda whole, part, n: n * whole + OUTSIDE, lambda n: n)),
        ),
        Mistake(
            "x.grad is averaged. The gradients of the ranks' outputs are parts of a sum: add them "
            "up.",
            when=simulated(_would(lambda whole, part, n: whole / n + OUTSIDE)),
        ),
        Mistake(
            "x.grad has what comes from outside the layer world_size times: a hook on x itself "
            "adds up everything that reaches x. Put it on a view of x, which only the layer uses.",
            when=simulated(_would(lambda whole, part, n: whole + n * OUTSIDE)),
        ),
        Mistake(
            "You gather the weight: then every rank computes the whole layer. Gather the outputs "
            "instead; backward then needs one all-reduce, where x enters the layer.",
            missed="collectives",
        ),
        Mistake(
            "The output has this rank's columns only. Gather those of all ranks, and put them side "
            "by side.",
            when=_output_is(lambda outs, rank: outs[rank]),
        ),
        Mistake(
            "You add the ranks' outputs up, as in a layer that is cut by its inputs. Here each is "
            "a part of the columns: put them side by side.",
            when=_output_is(lambda outs, rank: sum(outs)),
        ),
        Mistake(
            "Your own columns come first. The order is that of the ranks, the same on each.",
            when=_output_is(
                lambda outs, rank: torch.cat([outs[rank], *outs[:rank], *outs[rank + 1 :]], dim=1)
            ),
        ),
    ),
    hints=(
        "Forward: compute this rank's columns, all_gather everybody's, and put them side by side. "
        "Backward: what of x.grad does this rank know, and what does it lack?",
        "all_gather knows nothing of autograd: give it own.detach(), and put own itself in its "
        "place in the list before torch.cat. The other parts are constants.",
        "A hook with add_up, as above, completes x's gradient. Put it on x.view_as(x), which only "
        "the layer uses: x may have other gradients, which are no parts of this sum.",
    ),
)
