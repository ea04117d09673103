"""The exercises of notebook 09: which scale, which gradients, who skips, what to save.

Nothing here computes in fp16 itself: powers of two and small integers give the same bits on every
processor, so what a wrong answer gives is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..exercise import Exercise, Goal, Here, Mistake
from ..mistakes import When, failed

#: The largest number of fp16.
LARGEST = torch.finfo(torch.float16).max


def _each(yours: Sequence[Any], wanted: Sequence[float]) -> bool:
    """Tell whether every rank has the number that is wanted of it."""
    return all(
        isinstance(mine, float) and math.isclose(mine, its, rel_tol=1e-5)
        for mine, its in zip(yours, wanted, strict=True)
    )


def _number(value: Any) -> Any:
    """Return a tensor with one element as a number, anything else as it is."""
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


# -- 09-1: find the largest scale -------------------------------------------------------------


def _peak(rank: int) -> float:
    """Return a rank's largest gradient; it is negative."""
    return {0: -2.0e-3, 1: -2.4e-3}.get(rank, -1.0e-3)


def _gradients(rank: int) -> torch.Tensor:
    return torch.tensor([1e-7, 2e-4 / (rank + 1), _peak(rank), -3e-6])


def _power(top: float, round_: Callable[[float], int] = math.floor) -> float:
    return 2.0 ** round_(math.log2(LARGEST / top))


def _top(n: int) -> float:
    return max(-_peak(r) for r in range(n))


def trial_scale(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    """Ask for the largest scale."""
    return _number(answer(_gradients(here.rank).to(here.device)))


def expected_scale(n: int) -> list[float]:
    """Look at all ranks' gradients in one process."""
    return [_power(torch.cat([_gradients(r) for r in range(n)]).abs().max().item())] * n


SCALE = Exercise(
    id="09-1",
    title="Find the largest scale",
    answer="largest_scale",
    trial=trial_scale,
    expected=expected_scale,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "Each rank looks at its own gradients, so the ranks have different scales. The largest "
            "gradient of all ranks decides: all_reduce with MAX.",
            when=lambda yours, expected, n: _each(yours, [_power(-_peak(r)) for r in range(n)]),
        ),
        Mistake(
            "The largest gradient here is a negative one, and it overflows too: take abs() first.",
            when=lambda yours, expected, n: (
                _each(yours, [_power(2e-4)] * n) or failed(yours, "ValueError")
            ),
        ),
        Mistake(
            "Rounded up, the largest gradient overflows: round the exponent down.",
            when=lambda yours, expected, n: _each(yours, [_power(_top(n), math.ceil)] * n),
        ),
        Mistake(
            "That is the largest factor, but not a power of two. A power of two changes the "
            "exponent only, and costs no digit.",
            when=lambda yours, expected, n: _each(yours, [LARGEST / _top(n)] * n),
        ),
        Mistake(
            "An all_reduce adds up unless it is told otherwise: op=dist.ReduceOp.MAX.",
            when=lambda yours, expected, n: _each(
                yours, [_power(sum(-_peak(r) for r in range(n)))] * n
            ),
        ),
    ),
    hints=(
        "Only one number of each rank matters: the largest absolute value.",
        "The largest of all ranks is an all_reduce with op=dist.ReduceOp.MAX. The factor is "
        "65504 divided by it, rounded down to a power of two.",
        "top = gradient.abs().max(); all_reduce it with MAX; return "
        "2.0 ** math.floor(math.log2(65504 / top.item())).",
    ),
)

# -- 09-2: clip with a scaler -----------------------------------------------------------------

#: The scale that the trial starts with, and how fast it learns.
START, RATE, MOST = 1024.0, 0.5, 1.0


def _slopes(rank: int, n: int) -> torch.Tensor:
    """Return an input whose mean over the ranks is (3, 4): a gradient of norm 5."""
    off_mean = rank - (n - 1) / 2
    return torch.tensor([[3.0 + off_mean, 4.0 - off_mean]])


def trial_clip(answer: Callable[..., Any], here: Here) -> Any:
    """Take a step that is clipped, one that overflows and one that is short enough."""
    net = nn.Linear(2, 1, bias=False).to(here.device)
    nn.init.ones_(net.weight)
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler(here.device.type, init_scale=START, growth_interval=1000)
    seen = {}
    for name, factor in (("long", 1.0), ("overflow", math.inf), ("short", 0.1)):
        loss = ddp(_slopes(here.rank, here.world_size).to(here.device)).sum() * factor
        norm = _number(answer(ddp, loss, optimizer, scaler, MOST))
        if name == "long":
            seen["norm"] = norm
        seen[name] = [round(w, 4) for w in net.weight.flatten().tolist()]
    return {**seen, "scale": scaler.get_scale()}


def expected_clip(n: int) -> list[dict[str, Any]]:
    """Take the same steps by hand: (3, 4) is cut to (0.6, 0.8), (0.3, 0.4) is short enough."""
    first = [1 - RATE * 0.6, 1 - RATE * 0.8]
    last = [round(first[0] - RATE * 0.3, 4), round(first[1] - RATE * 0.4, 4)]
    result = {"norm": 5.0, "long": first, "overflow": first, "short": last, "scale": START / 2}
    return [result] * n


def _shows(**wanted: Any) -> When:
    """Return the predicate of a mistake that leaves these values on every rank."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return all(
            torch.allclose(torch.tensor(mine[key]), torch.tensor(value), 1e-3)
            for mine in yours
            for key, value in wanted.items()
        )

    return when


CLIP = Exercise(
    id="09-2",
    title="Clip with a scaler",
    answer="clipped_step",
    trial=trial_clip,
    expected=expected_clip,
    mistakes=(
        Mistake(
            "The scaler refuses a second step before update(): end each step with scaler.update().",
            when=lambda yours, expected, n: any(
                text in getattr(y, "message", "")
                for y in yours
                for text in ("after step()", "already been called")
            ),
        ),
        Mistake(
            "The loss was never scaled: scaler.scale(loss).backward().",
            when=lambda yours, expected, n: failed(yours, "AssertionError"),
        ),
        Mistake(
            "You clip scaled gradients: their norm is 1024 times too large, and after the scaler "
            "has divided, hardly anything is left of them. Call scaler.unscale_(optimizer) before "
            "you clip.",
            when=_shows(norm=5 * START),
        ),
        Mistake(
            "The overflow is in the weights: optimizer.step() takes every step, scaler.step("
            "optimizer) only those without inf or nan.",
            when=lambda yours, expected, n: all(
                not any(math.isfinite(w) for w in mine["overflow"]) for mine in yours
            ),
        ),
        Mistake(
            "The gradients of the last step are still there, and so is its inf: begin with "
            "optimizer.zero_grad().",
            when=_shows(overflow=[0.7, 0.6], short=[0.7, 0.6]),
        ),
        Mistake(
            "The weights move by the whole gradient: clip between unscale_ and step.",
            when=_shows(long=[-0.5, -1.0]),
        ),
        Mistake(
            "The step is right. Return the norm too: clip_grad_norm_ gives it.",
            when=lambda yours, expected, n: all(
                mine["norm"] is None and mine["short"] == its["short"]
                for mine, its in zip(yours, expected, strict=True)
            ),
        ),
    ),
    hints=(
        "Gradients are scaled from backward() on. Something has to undo that before you clip.",
        "In this order: zero_grad, scale and backward, unscale_, clip, step, update.",
        "After scaler.unscale_(optimizer): norm = nn.utils.clip_grad_norm_(net.parameters(), "
        "max_norm); scaler.step(optimizer); scaler.update(); return norm.",
    ),
)

# -- 09-3: skip together ----------------------------------------------------------------------

STEPS, INTERVAL, FIRST = 12, 3, 8.0


def _overflows(step: int, rank: int, n: int) -> bool:
    """Tell whether a rank overflows: rank 1 in step 2, the last one in step 4."""
    return (step, rank) in ((2, min(1, n - 1)), (4, n - 1))


def trial_skip(answer: Callable[..., Any], here: Here) -> list[float]:
    """Let the scale develop over twelve steps."""
    scale, good, scales = FIRST, 0, []
    for step in range(STEPS):
        scale, good = answer(scale, good, _overflows(step, here.rank, here.world_size), INTERVAL)
        scale, good = _number(scale), _number(good)
        scales.append(scale)
    return scales


#: rule(scale, good, overflow) -> scale, good
Rule = Callable[[float, int, bool], tuple[float, int]]


def _right(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2, 0) if good + 1 == INTERVAL else (scale, good + 1)


def _never_grows(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    return (scale / 2, 0) if overflow else (scale, good + 1)


def _keeps_counting(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, good
    return (scale * 2, 0) if good + 1 == INTERVAL else (scale, good + 1)


def _grows_late(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2, 0) if good == INTERVAL else (scale, good + 1)


def _grows_on(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2 if good + 1 >= INTERVAL else scale), good + 1


def _grows_once(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2 if good + 1 == INTERVAL else scale), good + 1


def _played(rule: Rule, n: int, rank: int | None = None) -> list[float]:
    """Play a rule in one process; with ``rank``, as if this rank knew its own overflows only."""
    scale, good, scales = FIRST, 0, []
    for step in range(STEPS):
        ranks = range(n) if rank is None else [rank]
        scale, good = rule(scale, good, any(_overflows(step, r, n) for r in ranks))
        scales.append(scale)
    return scales


def expected_skip(n: int) -> list[list[float]]:
    """Play the rule in one process that knows all ranks' overflows."""
    return [_played(_right, n)] * n


def _plays(*rules: Rule) -> When:
    return lambda yours, expected, n: any(yours == [_played(rule, n)] * n for rule in rules)


SKIP = Exercise(
    id="09-3",
    title="Skip together",
    answer="next_scale",
    trial=trial_skip,
    expected=expected_skip,
    goals=(Goal("collectives", exactly=lambda n: STEPS),),
    mistakes=(
        Mistake(
            "Only the ranks that overflow make the call, and they wait for the others. Every rank "
            "brings its flag in every step, also a zero.",
            when=lambda yours, expected, n: failed(yours, "Deadlock"),
        ),
        Mistake(
            "Each rank decides by its own overflow, and the scales drift apart. Let all ranks know "
            "whether any of them overflowed.",
            when=lambda yours, expected, n: (
                yours == [_played(_right, n, r) for r in range(n)] and yours != expected
            ),
        ),
        Mistake(
            "The scale never grows: after interval good steps in a row it doubles, and the count "
            "begins again.",
            when=_plays(_never_grows),
        ),
        Mistake(
            "The count of good steps goes on over a skipped one. They have to be in a row: return "
            "0 when a step is skipped.",
            when=_plays(_keeps_counting),
        ),
        Mistake(
            "It grows one step too late: the step that is just over counts too.",
            when=_plays(_grows_late),
        ),
        Mistake(
            "After the scale has grown, the count begins again: return 0 there too.",
            when=_plays(_grows_on, _grows_once),
        ),
        Mistake(
            "Return two things, the new scale and the new count: return scale, good.",
            when=lambda yours, expected, n: failed(yours, "TypeError", "ValueError"),
        ),
    ),
    hints=(
        "First make the ranks agree: did any of them overflow? Then all apply the same rule.",
        "flag = torch.tensor(float(overflow), device=device) and an all_reduce with MAX: above "
        "zero on all ranks if it was on one.",
        "Any overflow: return scale / 2, 0. Else, if good + 1 == interval: return scale * 2, 0. "
        "Else: return scale, good + 1.",
    ),
)

# -- 09-4: save all of it ---------------------------------------------------------------------

PARTS = ("net", "optimizer", "scaler")


def _training(
    seed: int, device: torch.device
) -> tuple[nn.Linear, torch.optim.Optimizer, torch.amp.GradScaler]:
    torch.manual_seed(seed)
    net = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, optimizer, torch.amp.GradScaler(device.type, init_scale=4.0, growth_interval=2)


def _go_on(net: nn.Module, optimizer: Any, scaler: Any, steps: int) -> None:
    device = next(net.parameters()).device
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.arange(3.0, device=device) + step
        scaler.scale(net(x).square().sum() / 100).backward()
        scaler.step(optimizer)
        scaler.update()


def trial_save(answer: Callable[..., Any], here: Here) -> Any:
    """Snap, go on, and come back with new objects: is it the same?"""
    net, optimizer, scaler = _training(here.rank, here.device)
    _go_on(net, optimizer, scaler, 3)
    snap = answer(net, optimizer, scaler)
    if not isinstance(snap, dict):
        return snap
    _go_on(net, optimizer, scaler, 3)
    again, its_optimizer, its_scaler = _training(here.rank + 100, here.device)
    parts: tuple[Any, ...] = (again, its_optimizer, its_scaler)
    for key, part in zip(PARTS, parts, strict=True):
        if key in snap:
            part.load_state_dict(snap[key])
    _go_on(again, its_optimizer, its_scaler, 3)
    return {
        "saved": sorted(map(str, snap)),
        "same weights": torch.equal(net.weight, again.weight),
        "same scale": scaler.get_scale() == its_scaler.get_scale(),
    }


def expected_save(n: int) -> list[dict[str, Any]]:
    """Everything is saved, and resuming gives the same."""
    return [{"saved": sorted(PARTS), "same weights": True, "same scale": True}] * n


def _lacks(part: str) -> When:
    return lambda yours, expected, n: all(
        isinstance(mine, dict) and part not in mine["saved"] for mine in yours
    )


SAVE = Exercise(
    id="09-4",
    title="Save all that a step depends on",
    answer="snapshot",
    trial=trial_save,
    expected=expected_save,
    mistakes=(
        Mistake(
            "The scaler is missing, so a resumed run starts with another scale.",
            when=_lacks("scaler"),
        ),
        Mistake("The optimizer is missing, and with it the momentum.", when=_lacks("optimizer")),
        Mistake(
            "A state_dict holds the tensors themselves, and training goes on to change them: your "
            "snapshot changed with it. Copy it: deepcopy(net.state_dict()).",
            when=lambda yours, expected, n: all(
                mine["saved"] == sorted(PARTS) and not mine["same weights"] for mine in yours
            ),
        ),
    ),
    hints=(
        "Three things remember something from step to step: the net, the optimizer and the "
        "scaler. Each has a state_dict().",
        "A state_dict of a net refers to its tensors, which the next step changes. What makes a "
        "copy of a dictionary with everything in it?",
        "deepcopy({'net': net.state_dict(), 'optimizer': optimizer.state_dict(), 'scaler': "
        "scaler.state_dict()}).",
    ),
)

EXERCISES = (SCALE, CLIP, SKIP, SAVE)
