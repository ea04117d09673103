"""Exercise 08-4: a whole step with autocast, accumulation, a scaler, clipping and a schedule."""

from __future__ import annotations

import math
from typing import Any

from ...exercise import Exercise, Goal, Mistake
from ...mistakes import Predicate, every_rank, near
from .whole_step import LABELS, RATE, SCALE, STEPS, expected, look, trial

#: The norm of what the last of the first step's batches adds to the mean gradient.
_LAST = math.hypot(3.0 + 3.0, 4.0 - 3.0) / 4


def _shows(what: str, *values: Any) -> Predicate:
    """Return the predicate of a mistake that gives these values in the first steps."""
    return every_rank(lambda mine, its: near(look(mine, what)[: len(values)], list(values)))


def _differ(yours: Any, expected: Any, n: int) -> bool:
    first = [look(mine, "weights")[0] for mine in yours]
    return n > 1 and all(w != first[0] for w in first[1:])


@every_rank
def _keeps_inf(mine: Any, its: Any) -> bool:
    weights = look(mine, "weights")
    return near(weights[3], weights[2]) and not near(its, mine)


@every_rank
def _stays(mine: Any, its: Any) -> bool:
    """Return whether no step has changed the weights."""
    first, *later = look(mine, "weights")
    return all(near(weights, first) for weights in later)


EXERCISE = Exercise(
    id="08-4",
    title="A whole step",
    answer="train_step",
    setup="""
from contextlib import nullcontext
from torch import nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
""",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: len(STEPS)),),
    entries=LABELS,
    mistakes=(
        Mistake(
            "unscale_ may be called once per step: after the last batch's backward(), outside the "
            "loop.",
            raises=r"unscale_\(\) has already been called",
        ),
        Mistake(
            "The scaler refuses a second step before update(): end each step with scaler.update().",
            raises=r"already been called since the last update|being called after step\(\)",
        ),
        Mistake(
            "The loss was never scaled: call scaler.scale(loss).backward().",
            raises=r"Attempted \w+ but _scale is None",
        ),
        Mistake(
            "update() comes once per step, after scaler.step(optimizer): before that the scaler "
            "has looked at no gradient.",
            raises=r"No inf checks were recorded prior to update",
        ),
        Mistake(
            "The ranks' weights differ after the first step: no backward() is left that averages "
            "the gradients. The last batch belongs outside no_sync().",
            when=_differ,
        ),
        Mistake(
            "You clip scaled gradients, 1,024 times too long: hardly anything is left of them "
            "after unscaling. Call scaler.unscale_(optimizer) before you clip.",
            when=every_rank(
                lambda mine, its: not near(look(mine, "weights")[0], look(its, "weights")[0])
            )
            & _shows("norm", 5 * SCALE),
        ),
        Mistake(
            "The gradient of the first step is four times too long, the sum over its batches. The "
            "mean is wanted: divide each loss by len(batches).",
            when=_shows("norm", 20.0),
        ),
        Mistake(
            "Only the last batch is in the gradient: zero_grad() throws away what the others have "
            "added. Call it before the loop.",
            when=_shows("norm", _LAST),
        ),
        Mistake(
            "Each parameter is clipped by itself. The norm is that of all gradients together, and "
            "all are multiplied by the same number: pass all parameters to one clip_grad_norm_.",
            when=_shows("weights", [0.5, 0.5])
            & every_rank(lambda mine, its: look(mine, "norm")[0] is not None),
        ),
        Mistake(
            "The weights move by the unclipped gradient: clip between unscale_ and step.",
            when=_shows("weights", [-0.5, -1.0]),
        ),
        Mistake(
            "The overflow has reached the weights: optimizer.step() takes every step, "
            "scaler.step(optimizer) skips those with inf or nan.",
            when=every_rank(
                lambda mine, its: not all(map(math.isfinite, look(mine, "weights")[2]))
            ),
        ),
        Mistake(
            "The weights never change: call scaler.step(optimizer) once per step, and clip to the "
            "norm that the text names.",
            when=_stays,
        ),
        Mistake(
            "The step after the overflow is skipped as well, because the inf is still in .grad: "
            "begin with optimizer.zero_grad().",
            when=_keeps_inf,
        ),
        Mistake(
            "The schedule moves on with the step that was skipped. It may move only if the "
            "optimizer did.",
            when=_shows("rate", RATE / 2, RATE / 4, RATE / 8, RATE / 16),
        ),
        Mistake(
            "The schedule never moves: call schedule.step() after each step that was taken.",
            when=_shows("rate", RATE, RATE, RATE, RATE),
        ),
        Mistake(
            "The schedule stays where it is when the scale has grown. That step was taken: the "
            "scale falls only if a step is skipped.",
            when=_shows("rate", RATE / 2, RATE / 2, RATE / 2),
        ),
        Mistake(
            "The schedule moves with the skipped step, and with no other: the scale falls when a "
            "step is skipped.",
            when=_shows("rate", RATE, RATE, RATE / 2),
        ),
        Mistake(
            "The model computes in fp32: its forward pass belongs under torch.autocast with "
            "dtype=torch.float16.",
            when=every_rank(lambda mine, its: mine[-1] == "torch.float32"),
        ),
        Mistake(
            "The model computes in bf16, autocast's own choice on a CPU: pass dtype=torch.float16.",
            when=every_rank(lambda mine, its: mine[-1] == "torch.bfloat16"),
        ),
        Mistake(
            "The steps are right, but the norm is not returned: return what clip_grad_norm_ "
            "returns.",
            when=_shows("norm", *[None] * len(STEPS))
            & every_rank(lambda mine, its: near(look(mine, "weights"), look(its, "weights"))),
        ),
        Mistake(
            "The steps are right, but there are more all-reduces than one per step. Put forward "
            "and backward of all batches but the last under ddp.no_sync().",
            missed="collectives",
        ),
    ),
    hints=(
        "In this order: zero_grad; for each batch forward and backward; unscale_, clip, step, "
        "update; and last the schedule, if the step was taken.",
        "Divide each loss by len(batches) and scale it. All batches but the last run under "
        "ddp.no_sync(), forward and backward both; autocast ends before backward().",
        "scaler.get_scale() before scaler.step and after scaler.update tells whether the step was "
        "skipped: then, and only then, it has fallen.",
    ),
)
