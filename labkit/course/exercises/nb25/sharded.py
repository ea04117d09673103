"""What exercise 25-3 trains, and what the usual mistakes would make of it.

Rank r's gradients are whole numbers that depend on r, on the step and on the place, so that a sum,
a mean and a rank's own are told apart. SGD with momentum shows the size of a gradient, which Adam
hides. The numbers of the first parameters are divided by no world size from 2 to 12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...exercise import Here
from ...mistakes import Predicate, rank_simulated

#: The bytes of a number, and of Adam's count of steps.
NUMBER = 4


@dataclass(frozen=True)
class Case:
    """One optimizer, the shapes of what it trains, and how often it steps."""

    kind: type[torch.optim.Optimizer]
    options: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    steps: int
    #: How many numbers of state each parameter's number has.
    copies: int

    def numbers(self) -> int:
        """Count the numbers of all parameters."""
        return sum(torch.Size(shape).numel() for shape in self.shapes)

    def share(self, n: int) -> int:
        """Return the length of a rank's piece of them."""
        return -(-self.numbers() // n)

    def limit(self, n: int) -> int:
        """Return the bytes that a share's state may have, with a count of steps per parameter."""
        counters = NUMBER * len(self.shapes) if self.kind is torch.optim.Adam else 0
        return NUMBER * self.copies * self.share(n) + counters


CASES = (
    Case(torch.optim.SGD, {"lr": 0.5, "momentum": 0.5}, ((3, 2), (5,), (), (1, 1)), 3, 1),
    Case(torch.optim.Adam, {"lr": 0.125}, ((2,),), 2, 2),
)


def first_weights(case: Case) -> list[torch.Tensor]:
    """Return the parameters at the beginning: whole numbers of either sign."""
    sizes = [torch.Size(shape).numel() for shape in case.shapes]
    row = torch.arange(float(case.numbers())) * 3 % 7 - 2
    return [part.reshape(shape) for part, shape in zip(row.split(sizes), case.shapes, strict=True)]


def _gradients(case: Case, step: int, rank: int) -> list[torch.Tensor]:
    return [
        torch.full(shape, float(10 * k - 12 * rank * (-1) ** k + 4 * step + 1))
        + 12 * torch.arange(float(torch.Size(shape).numel())).reshape(shape)
        for k, shape in enumerate(case.shapes)
    ]


def _state_bytes(optimizers: Sequence[torch.optim.Optimizer]) -> int:
    entries = [entry for optimizer in optimizers for entry in optimizer.state.values()]
    tensors = [t for entry in entries for t in entry.values() if isinstance(t, torch.Tensor)]
    return sum(t.nbytes for t in tensors)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Train with each case's optimizer; look at the weights, and at the state that was made."""
    found: list[Any] = []
    for case in CASES:
        made: list[torch.optim.Optimizer] = []

        def make(tensors: Any, case: Case = case, made: list[Any] = made, **options: Any) -> Any:
            made.append(case.kind(tensors, **options))
            return made[-1]

        parameters = [nn.Parameter(w.clone().to(here.device)) for w in first_weights(case)]
        optimizer = answer(parameters, make, **case.options)
        for step in range(case.steps):
            for p, gradient in zip(parameters, _gradients(case, step, here.rank), strict=True):
                p.grad = gradient.to(here.device)
            optimizer.step()
        real = _state_bytes(made)
        row = torch.cat([p.detach().reshape(-1) for p in parameters])
        found += [row, real <= case.limit(here.world_size), optimizer.state_bytes() - real]
    return found


def labels(n: int) -> list[str]:
    texts = []
    for case in CASES:
        name, share = case.kind.__name__, case.share(n)
        texts += [
            f"weights after {case.steps} steps of {name}",
            f"{name}'s state is that of at most {share} of {case.numbers()} numbers",
            f"state_bytes() minus the bytes that {name}'s state has",
        ]
    return texts


Grads = Callable[[Case, int, int, int], torch.Tensor]


def as_row(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def mean_of_gradients(case: Case, step: int, rank: int, n: int) -> torch.Tensor:
    return torch.stack([as_row(_gradients(case, step, r)) for r in range(n)]).mean(dim=0)


def sum_of_gradients(case: Case, step: int, rank: int, n: int) -> torch.Tensor:
    return mean_of_gradients(case, step, rank, n) * n


def own_gradient(case: Case, step: int, rank: int, n: int) -> torch.Tensor:
    return as_row(_gradients(case, step, rank))


def trained(case: Case, rank: int, n: int, grads: Grads, *, anew: bool = False) -> torch.Tensor:
    """Train in one process; with ``anew``, by a new optimizer in every step."""
    weights = as_row(first_weights(case))
    for step in range(case.steps):
        if anew or step == 0:
            optimizer = case.kind([weights], **case.options)
        weights.grad = grads(case, step, rank, n)
        optimizer.step()
    return weights


def _piece(case: Case, rank: int, n: int) -> slice:
    """Return where a rank's piece of the row is."""
    return slice(rank * case.share(n), (rank + 1) * case.share(n))


def expected(n: int) -> list[list[Any]]:
    items: list[Any] = []
    for case in CASES:
        items += [trained(case, 0, n, mean_of_gradients), True, 0]
    return [items] * n


def after_sgd(simulate: Callable[[Case, int, int], torch.Tensor]) -> Predicate:
    """Return the predicate of an answer after which SGD's weights are
    ``simulate(case, rank, n)``."""
    return rank_simulated(lambda rank, n: simulate(CASES[0], rank, n), lambda own: own[0])


def from_own_pieces(case: Case, rank: int, n: int) -> torch.Tensor:
    pieces = [trained(case, owner, n, own_gradient)[_piece(case, owner, n)] for owner in range(n)]
    return torch.cat(pieces)


def own_piece_only(case: Case, rank: int, n: int) -> torch.Tensor:
    row, piece = as_row(first_weights(case)), _piece(case, rank, n)
    row[piece] = trained(case, rank, n, mean_of_gradients)[piece]
    return row


def from_zero(case: Case, rank: int, n: int) -> torch.Tensor:
    return trained(case, rank, n, mean_of_gradients) - as_row(first_weights(case))


#: What another cell of the notebook defines.
SETUP = """
import torch.nn.functional as F
from torch import nn


def row(tensors):
    flat = nn.utils.parameters_to_vector(tensors).detach()
    return F.pad(flat, (0, -len(flat) % world_size))
"""
