"""Exercise 00-1: replace every gradient of a model by its mean over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, rank_simulated, simulated, some_rank
from .reduced import left_by_reduce

#: What the trial returns of each rank, in this order.
ENTRIES = ("weight.grad", "bias.grad", "weight", "bias")
#: The parameters before, equal on all ranks, as they would be in training.
WEIGHT, BIAS = [[0.5, -2.0]], [3.0]
#: The collectives that the goal allows: one per parameter.
PARAMETERS = 2


def _gradients(rank: int) -> torch.Tensor:
    """Return what backward() left on a rank, the weight's two numbers and the bias's: no rank has
    a mean of all, and in no column are all numbers positive."""
    return torch.tensor([rank + 1.25, 7.0 - 3.0 * rank * rank, 2.5 - 4.0 * rank])


def _model(rank: int, device: Any) -> torch.nn.Linear:
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(WEIGHT))
        model.bias.copy_(torch.tensor(BIAS))
    model = model.to(device)
    gradients = _gradients(rank).to(device)
    model.weight.grad, model.bias.grad = gradients[None, :2].clone(), gradients[2:].clone()
    return model


def trial(answer: Callable[[torch.nn.Module], Any], here: Here) -> Any:
    model = _model(here.rank, here.device)
    answer(model)
    tensors = (model.weight.grad, model.bias.grad, model.weight, model.bias)
    return [None if t is None else t.detach().flatten().tolist() for t in tensors]


def _left(gradients: torch.Tensor) -> list[Any]:
    """Return what the trial returns of a rank that has these gradients afterwards."""
    return [gradients[:2].tolist(), gradients[2:].tolist(), WEIGHT[0], BIAS]


def _all(world_size: int) -> torch.Tensor:
    return torch.stack([_gradients(r) for r in range(world_size)])


def expected(world_size: int) -> list[Any]:
    return [_left(_all(world_size).mean(0))] * world_size


def _all_have(combine: Callable[[torch.Tensor], torch.Tensor]) -> Predicate:
    """Return the predicate of ranks that all have ``combine(the gradients of all)``."""
    return simulated(lambda n: [_left(combine(_all(n)))] * n)


def _each_has(change: Callable[[torch.Tensor, int], torch.Tensor]) -> Predicate:
    """Return the predicate of ranks that have ``change(its gradients, n)`` each."""
    return rank_simulated(lambda r, n: _left(change(_gradients(r), n)))


def _reduced(yours: Any, expected: Any, n: int) -> bool:
    """Return whether one rank has the means, or the sums, and others what reduce leaves there."""
    if any(part is None for mine in yours for part in mine[:2]):
        return False
    has = [torch.tensor([*mine[0], *mine[1]]) for mine in yours]
    brought = [_gradients(r) for r in range(n)]
    return left_by_reduce(has, brought) or left_by_reduce([own * n for own in has], brought)


#: The weights have changed: nobody should do that before the step.
_moved = some_rank(lambda mine, its: mine[2:] != its[2:])


def _only(parameter: int) -> Predicate:
    """Return the predicate of ranks that averaged one parameter, and left the other."""
    means, own = (lambda n, r: _left(_all(n).mean(0))), (lambda n, r: _left(_gradients(r)))
    pick = (means, own) if parameter == 0 else (own, means)
    return rank_simulated(lambda r, n: [pick[0](n, r)[0], pick[1](n, r)[1], WEIGHT[0], BIAS])


def _last_divided(n: int) -> list[Any]:
    """Return what the trial returns of a rank that divided the bias's gradient only."""
    total = _all(n).sum(0)
    return _left(torch.cat([total[:2], total[2:] / n]))


EXERCISE = Exercise(
    id="00-1",
    title="Average the gradients",
    answer="average_gradients",
    trial=trial,
    expected=expected,
    entries=ENTRIES,
    goals=(Goal("collectives", most=lambda n: PARAMETERS),),
    fewest=1,  # the notebook has two ranks here
    mistakes=(
        Mistake(
            "dist.all_reduce changes the tensor that it is given and returns None: call it on "
            "a line of its own.",
            when=some_rank(lambda mine, its: mine[0] is None),
            raises=r"^TypeError: unsupported operand type\(s\) for //?=?: 'NoneType'",
        ),
        Mistake(
            "That is the parameter itself. Its gradient is p.grad, and that is what has to be "
            "added up and divided.",
            raises=r"^RuntimeError: a leaf Variable that requires grad is being used",
        ),
        Mistake(
            "A model has no gradient of its own: each of its parameters has one. Write a loop, "
            "for p in model.parameters(), and use p.grad.",
            raises=r"^AttributeError: '\w+' object has no attribute 'grad'",
        ),
        Mistake(
            "That is the mean of the numbers in one rank's tensor. The mean over the ranks is the "
            "sum that dist.all_reduce gives, divided by world_size.",
            raises=r"^RuntimeError: attempting to assign a gradient of size '\[\]'",
        ),
        Mistake(
            "Not every rank makes the call, and those that do wait for the others. Every rank has "
            "to run the loop: no condition on the rank.",
            stuck=r"waits? in (?:all_)?reduce[\s\S]*(?:condition|ended)",
        ),
        Mistake(
            "The weights have changed, not only the gradients. A parameter's gradient is p.grad; "
            "the step comes later, and optimizer.step() makes it.",
            when=_moved,
        ),
        Mistake(
            "Not every rank has the mean: dist.reduce gives the sum to one rank only. "
            "dist.all_reduce gives it to all.",
            when=_reduced,
            hint="Compare the arguments: reduce has dst, the one rank that gets the result.",
        ),
        Mistake(
            "That is the sum: the gradients themselves have to be divided by the number of ranks, "
            "in place. A line such as g = g / world_size makes a new tensor and leaves p.grad as "
            "it was.",
            when=_all_have(lambda all: all.sum(0)),
        ),
        Mistake(
            "Only the last gradient is divided. The line that divides belongs inside the loop, "
            "after the all_reduce.",
            when=simulated(lambda n: [_last_divided(n)] * n),
        ),
        Mistake(
            "This is the mean, divided by the number of ranks once more: divide once, by "
            "world_size.",
            when=simulated(lambda n: [_left(_all(n).sum(0) / n / n)] * n),
        ),
        Mistake(
            "Only one of the two parameters is averaged: the weight and the bias both have a "
            "gradient. model.parameters() gives you all of them.",
            when=_only(0) | _only(1),
        ),
        Mistake(
            "Each rank still has its own gradients: nothing was added up over the ranks, or not "
            "the gradients, p.grad, but the parameters.",
            when=_each_has(lambda g, n: g) | _each_has(lambda g, n: g / n),
        ),
        Mistake(
            "This is the ranks' largest, smallest or product. A mean needs their sum, which is "
            "what dist.all_reduce gives without op=; then divide by world_size.",
            when=_all_have(lambda all: all.amax(0))
            | _all_have(lambda all: all.amin(0))
            | _all_have(lambda all: all.prod(0))
            | simulated(lambda n: [_left(_all(n).amax(0) / n)] * n)
            | simulated(lambda n: [_left(_all(n).amin(0) / n)] * n)
            | simulated(lambda n: [_left(_all(n).prod(0) / n)] * n),
        ),
        Mistake(
            "One collective per parameter is enough: one all_reduce adds up all numbers of a "
            "gradient, on all ranks.",
            missed="collectives",
        ),
    ),
    hints=(
        "Section 1 averaged the gradients of a model in a loop over its parameters. Which lines "
        "were that?",
        "dist.all_reduce(p.grad) changes p.grad itself and returns nothing. What is in p.grad "
        "afterwards?",
        "Afterwards p.grad holds the sum over all ranks. Divide it in place, with /=, by the "
        "number of ranks.",
    ),
)
