"""Exercise 12-2: find the buffers that DataParallel leaves wrong, with one device as the judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated
from .replicas import data_parallel

DEVICES = 3
ROWS = 12


class _Counts(nn.Module):
    """Count in three ways, in four buffers."""

    steps: torch.Tensor
    rows: torch.Tensor
    largest: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("still", torch.tensor(7.0))
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("rows", torch.tensor(0))
        self.register_buffer("largest", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.rows += len(x)
        self.largest = x.abs().max()  # on the replica only
        return x


class _Adds(nn.Module):
    """Add to a parameter, too: that is no buffer."""

    weight: torch.Tensor
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.add_(x.sum(0))
        self.total += x.sum(0)
        return x * self.weight.mean()


def _normalized() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


def _spectral() -> nn.Module:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))


#: Models, by what the learner is told of them.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "counts in four buffers": _Counts,
    "Sequential(Linear, BatchNorm1d)": _normalized,
    "parametrizations.spectral_norm(Linear)": _spectral,
    "adds to a parameter and a buffer": _Adds,
    "Linear, without buffers": lambda: nn.Linear(2, 2),
}
LOST: tuple[list[str], ...] = (
    ["rows", "largest"],
    ["1.running_mean", "1.running_var"],
    [],
    ["total"],
    [],
)
UNCHANGED = len(MODELS)


def _batch() -> torch.Tensor:
    """Return rows of which no device's share is like the whole batch."""
    return torch.arange(1.0, 2 * ROWS + 1).reshape(ROWS, 2) ** 2 / 50


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    found: list[Any] = []
    unchanged = True
    for make in MODELS.values():
        model = make()
        before = {name: tensor.clone() for name, tensor in _tensors(model)}
        found.append(answer(model, _batch(), lambda model: data_parallel(model, DEVICES)))
        unchanged &= all(tensor.equal(before[name]) for name, tensor in _tensors(model))
    return [*found, unchanged]


def _tensors(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def expected() -> list[Any]:
    return [*LOST, True]


def _buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_buffers())


def _finds(of: Callable[[nn.Module], dict[str, torch.Tensor]], *, wrong: bool = True) -> Predicate:
    """Return the predicate of a mistake that finds what is wrong, or right, among ``of(model)``."""

    def all_of_them(n: int) -> list[Any]:
        found: list[Any] = []
        for make in MODELS.values():
            alone, parallel = make(), make()
            parallel.load_state_dict(alone.state_dict())
            alone(_batch())
            data_parallel(parallel, DEVICES)(_batch())
            one, other = of(alone), of(parallel)
            found.append([k for k in one if torch.allclose(one[k], other[k]) != wrong])
        return [*found, True]

    return simulated(all_of_them)


EXERCISE = Exercise(
    id="12-2",
    title="Find what is lost",
    answer="lost_buffers",
    setup="""
        from collections.abc import Callable
        from copy import deepcopy

        import torch
        from torch import nn
    """,
    trial=trial,
    expected=expected,
    entries=(*MODELS, "the models are unchanged"),
    where="notebook",
    mistakes=(
        Mistake(
            "The model that was passed has changed. Let both forward passes work on copies of it, "
            "deepcopy(model).",
            when=lambda yours, expected, n: yours[UNCHANGED] is False,
        ),
        Mistake(
            "It finds nothing, although a buffer was lost. Each of the two forward passes needs a "
            "copy of the model of its own: on the same copy nothing differs.",
            when=lambda yours, expected, n: all(found == [] for found in yours[:UNCHANGED]),
        ),
        Mistake(
            "Those are the buffers that are right. Return the others.",
            when=_finds(_buffers, wrong=False),
        ),
        Mistake(
            "These are the buffers that a forward pass changes. Compare with the model after a "
            "forward pass on one device, not with the model before it.",
            when=lambda yours, expected, n: (
                "steps" in yours[0] or any(str(name).endswith("_u") for name in yours[2])
            ),
        ),
        Mistake(
            "A buffer is missing that state_dict() does not have: it was registered with "
            "persistent=False. Ask named_buffers().",
            when=_finds(
                lambda model: {
                    name: tensor
                    for name, tensor in model.state_dict().items()
                    if name in _buffers(model)
                }
            ),
        ),
        Mistake(
            "It names a parameter. state_dict() has parameters too, and lacks buffers with "
            "persistent=False; you want those of named_buffers().",
            when=_finds(lambda model: dict(_tensors(model)))
            | _finds(lambda model: model.state_dict()),
        ),
    ),
    hints=(
        "Which two models do you compare, and what has each of them done?",
        "Make two copies with deepcopy. One runs forward directly, the other through wrap. Then "
        "compare their buffers by name.",
        "dict(copy.named_buffers()) has the buffers of a copy by their names; torch.allclose "
        "compares two of them.",
    ),
)
