"""Exercise 21-1: predict the bytes of a training state, which the check counts on the ranks.

Rows are divided by no world size from 2 to 8 in at least one tensor, and there are tensors with
fewer rows than ranks, so that ranks hold different numbers of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated


@dataclass(frozen=True)
class Case:
    """Shapes of tensors, the types of weights and gradients, and how they are trained."""

    shapes: tuple[tuple[int, ...], ...]
    weights: torch.dtype
    gradients: torch.dtype
    numbers: int
    sharded: bool

    def __str__(self) -> str:
        types = f"{self.weights}, {self.gradients}".replace("torch.", "")
        return f"state_bytes({list(self.shapes)}, {types}, {self.numbers}, {self.sharded})"


FULL, HALF = torch.float32, torch.bfloat16
TENSORS = ((11, 3), (24,), (1, 7), (2, 5, 2))
CASES = (
    Case(TENSORS, FULL, FULL, 2, sharded=False),
    Case(TENSORS, FULL, FULL, 2, sharded=True),
    Case(TENSORS, HALF, FULL, 2, sharded=False),
    Case(TENSORS[1:], HALF, HALF, 2, sharded=True),
    Case(TENSORS[:2], FULL, FULL, 1, sharded=True),
    Case(((5, 4),), FULL, FULL, 0, sharded=False),
    Case(((13,),), HALF, FULL, 1, sharded=True),
    Case(((3, 7),), HALF, FULL, 0, sharded=False),
)


class Tensors(nn.Module):
    """Tensors of these shapes as the weights of a model."""

    def __init__(self, case: Case, device: Any) -> None:
        super().__init__()
        for k, shape in enumerate(case.shapes):
            weight = nn.Parameter(torch.ones(shape, dtype=case.weights, device=device))
            self.register_parameter(f"weight{k}", weight)

    def forward(self) -> torch.Tensor:
        return torch.stack([p.sum() for p in self.parameters()]).sum()


def count(case: Case, here: Here) -> int:
    """Train one step, and count the bytes that this rank holds afterwards."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net: nn.Module = Tensors(case, here.device)
    if case.sharded:
        fully_shard(net, mesh=init_device_mesh(here.device.type, (here.world_size,)))
    net().backward()
    weights = list(net.parameters())
    gradients = [p.grad.to(case.gradients) for p in weights if p.grad is not None]
    copies = [p.detach().float() for p in weights] if case.weights != FULL else []
    trained = copies or weights
    for tensor, gradient in zip(trained, gradients, strict=True):
        tensor.requires_grad_().grad = gradient.float()
    momentum = {"momentum": 0.5} if case.numbers == 1 else {}
    kind: Any = torch.optim.Adam if case.numbers == 2 else torch.optim.SGD
    optimizer = kind(trained, lr=0.5, **momentum)
    optimizer.step()
    state = [
        tensor
        for entry in optimizer.state.values()
        for name, tensor in entry.items()
        if isinstance(tensor, torch.Tensor) and name != "step"
    ]
    tensors = [*weights, *gradients, *copies, *state]
    return sum((t.to_local() if hasattr(t, "to_local") else t).nbytes for t in tensors)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    found: list[Any] = []
    for case in CASES:
        shapes = [tuple(shape) for shape in case.shapes]
        found += [
            answer(shapes, case.weights, case.gradients, case.numbers, case.sharded),
            count(case, here),
        ]
    return found


def labels(n: int) -> list[str]:
    return [text for case in CASES for text in (str(case), "the same, counted on this rank")]


def _elements(shape: tuple[int, ...], rank: int, n: int) -> int:
    """Count this rank's numbers of a tensor whose rows are cut as torch.chunk does."""
    each = -(-shape[0] // n)
    return max(0, min(each, shape[0] - rank * each)) * math.prod(shape[1:])


def per_number(case: Case) -> int:
    """Return the bytes of weight, gradient, copy and optimizer state of one parameter."""
    return case.weights.itemsize + case.gradients.itemsize + _copy(case) + 4 * case.numbers


def _copy(case: Case) -> int:
    return 0 if case.weights == FULL else 4


#: Given a shape, a rank and the world size: how many numbers of the tensor the rank holds.
Numbers = Callable[[tuple[int, ...], int, int], float]


def _held(case: Case, rank: int, n: int, numbers: Numbers = _elements) -> float:
    parts = (rank, n) if case.sharded else (0, 1)
    return sum(numbers(shape, *parts) for shape in case.shapes)


def expected(n: int) -> list[list[float]]:
    return [
        [bytes_ for case in CASES for bytes_ in [_held(case, rank, n) * per_number(case)] * 2]
        for rank in range(n)
    ]


def _gives(numbers: Numbers = _elements, bytes_: Callable[[Case], float] = per_number) -> Predicate:
    """Return the predicate of an answer that multiplies these two, rounded down or not."""

    def rounded(by: Callable[[float], float]) -> Predicate:
        return simulated(
            lambda n: [
                [by(round(_held(case, rank, n, numbers) * bytes_(case), 6)) for case in CASES]
                for rank in range(n)
            ],
            lambda own: own[0::2],
        )

    return rounded(float) | rounded(int)


EXERCISE = Exercise(
    id="21-1",
    title="The bytes of a training state",
    answer="state_bytes",
    trial=trial,
    expected=expected,
    entries=labels,
    mistakes=(
        Mistake(
            "You count every tensor whole on every rank. With sharded=True a rank holds only its "
            "rows: of the weights, the gradients, the copy and the optimizer's numbers.",
            when=_gives(lambda shape, rank, n: math.prod(shape)),
        ),
        Mistake(
            "You divide by world_size. Rows are not cut: each rank gets ⌈rows / world_size⌉ of "
            "them, until none are left, so the last ranks may hold fewer, or none.",
            when=_gives(lambda shape, rank, n: math.prod(shape) / n),
        ),
        Mistake(
            "You cut the numbers of a tensor into equal pieces. fully_shard cuts rows (the first "
            "dimension), and a row stays whole.",
            when=_gives(lambda shape, rank, n: -(-math.prod(shape) // n)),
        ),
        Mistake(
            "Every rank of yours holds as much as rank 0. That one gets ⌈rows / world_size⌉ rows "
            "of each tensor; what is left for the last ranks may be fewer, or none.",
            when=_gives(lambda shape, rank, n: _elements(shape, 0, n)),
        ),
        Mistake(
            "You leave out the float32 copy. If the weights are bfloat16, the optimizer updates a "
            "float32 copy, 4 bytes per parameter, and the weights are made from it.",
            when=_gives(bytes_=lambda c: per_number(c) - _copy(c)),
        ),
        Mistake(
            "You leave out the float32 copy where the optimizer keeps no numbers. SGD without "
            "momentum updates a copy too, if the weights are bfloat16.",
            when=_gives(bytes_=lambda c: per_number(c) - _copy(c) * (c.numbers == 0)),
        ),
        Mistake(
            "You count a float32 copy although the weights are float32: then the optimizer updates "
            "the weights themselves.",
            when=_gives(bytes_=lambda c: per_number(c) + 4 - _copy(c)),
        ),
        Mistake(
            "You leave out the gradients. After backward each parameter has one.",
            when=_gives(bytes_=lambda c: per_number(c) - c.gradients.itemsize),
        ),
        Mistake(
            "Your optimizer's numbers have as many bytes as the weights. They are float32, 4 "
            "bytes, like the copy that they belong to.",
            when=_gives(bytes_=lambda c: per_number(c) - (4 - c.weights.itemsize) * c.numbers),
        ),
        Mistake(
            "You count 16 bytes per parameter whatever the recipe. That is Adam's with gradients "
            "of the weights' type; SGD keeps one number per parameter with momentum, and none "
            "without.",
            when=_gives(bytes_=lambda c: 16),
        ),
        Mistake(
            "Not all ranks get rows: each takes ⌈rows / world_size⌉ of them, rounded up, until "
            "none are left. Yours rounds down, or lets the lengths differ by one at most.",
            when=_gives(lambda shape, rank, n: shape[0] // n * math.prod(shape[1:]))
            | _gives(
                lambda shape, rank, n: (
                    (shape[0] // n + (rank < shape[0] % n)) * math.prod(shape[1:])
                )
            ),
        ),
    ),
    hints=(
        "First ignore the ranks: how many bytes do weight, gradient, copy and optimizer state of "
        "one parameter have together?",
        "A dtype's itemsize is its bytes. With Adam that makes 4 + 4 + 8 in float32, and 2 + 4 + 4 "
        "+ 8 with bfloat16 weights and float32 gradients. Then count this rank's parameters.",
        "With sharded=True rank r holds the rows from r · size up to (r + 1) · size, where size is "
        "⌈rows / world_size⌉: at most those that there are. A row has as many numbers as the "
        "product of the other dimensions.",
    ),
)
