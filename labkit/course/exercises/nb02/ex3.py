"""Exercise 02-3: gather tensors of different lengths, with collectives that need equal ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import near, parts, simulated
from .samples import LENGTHS, length, shares, tokens

CALLS = range(len(LENGTHS))
TYPES = ("int64", "float32")


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any]:
    """Gather tensors of unequal length: of whole numbers, then of floats."""
    results: list[Any] = []
    for call in CALLS:
        value = answer(tokens(call, here.rank).to(here.device))
        results += [value, str(getattr(value, "dtype", "no tensor")).removeprefix("torch.")]
    return results


def expected(world_size: int) -> list[list[Any]]:
    return _each(lambda call, rank, n: torch.cat(_all(call, n)))(world_size)


def _all(call: int, n: int) -> list[torch.Tensor]:
    return [tokens(call, rank) for rank in range(n)]


def _each(simulate: Callable[[int, int, int], torch.Tensor]) -> Callable[[int], list[list[Any]]]:
    """Return what every rank gives if ``simulate(call, rank, n)`` is what it does."""

    def simulation(n: int) -> list[list[Any]]:
        results = [[(simulate(call, rank, n), TYPES[call]) for call in CALLS] for rank in range(n)]
        return [[item for pair in pairs for item in pair] for pairs in results]

    return simulation


def _padded(call: int, n: int) -> torch.Tensor:
    """Return all ranks' tensors as rows, padded to the longest."""
    rows = torch.zeros(n, max(length(call, rank) for rank in range(n)), dtype=tokens(call, 0).dtype)
    for rank, mine in enumerate(_all(call, n)):
        rows[rank, : len(mine)] = mine
    return rows


def _without_zeros(call: int, rank: int, n: int) -> torch.Tensor:
    everyone = torch.cat(_all(call, n))
    return everyone[everyone != 0]


EXERCISE = Exercise(
    id="02-3",
    title="Gather tensors of unequal length",
    answer="gather_uneven",
    trial=trial,
    expected=expected,
    entries=lambda n: [
        f"{what}, {shares(call, n)}" for call in CALLS for what in ("all tensors", "their type")
    ],
    forbids=("all_gather_object",),
    goals=(Goal("collectives", most=lambda n: 2 * len(CALLS)),),
    mistakes=(
        Mistake(
            "The padding is still there: cut each piece to the length that its rank had.",
            when=simulated(_each(lambda call, rank, n: _padded(call, n).flatten())),
        ),
        Mistake(
            "Zeros that belong to the data are missing. Padding cannot be told from data by its "
            "value: cut each piece to the length that its rank had.",
            when=simulated(_each(_without_zeros)),
        ),
        Mistake(
            "Each rank cuts all pieces to its own length. Cut each piece to the length that its "
            "rank had.",
            when=simulated(
                _each(lambda call, rank, n: _padded(call, n)[:, : length(call, rank)].flatten())
            ),
        ),
        Mistake(
            "The pieces are in the order of their lengths; put them in the order of the ranks.",
            when=simulated(_each(lambda call, rank, n: torch.cat(sorted(_all(call, n), key=len)))),
        ),
        Mistake(
            "Each rank returns only its own numbers: the other ranks' tensors are missing.",
            when=simulated(_each(lambda call, rank, n: tokens(call, rank))),
        ),
        Mistake(
            "The result holds floats where x holds integers, and float32 cannot represent all of "
            "them: 16,777,217 became 16,777,216. Create the padded tensor with dtype=x.dtype.",
            when=lambda yours, expected, n: (
                near(parts(yours, 0), [x.float() for x in parts(expected, 0)])
                and not near(parts(yours, 0), parts(expected, 0))
                and all(kind.startswith("float") for kind in parts(yours, 1))
            ),
        ),
        Mistake(
            "This all_gather needs the same shape on every rank, but the lengths differ. Find the "
            "longest first, and pad every tensor to that length.",
            raises=r"Died: signal 6|invalid tensor size",
            stuck=r"Cause: They call all_gather\w* with different shapes",
        ),
        Mistake(
            "The result is right, but it takes more than two collectives per call, one for each "
            "rank's tensor. Padded to the same length, all tensors can travel in one all_gather.",
            missed="collectives",
        ),
    ),
    hints=(
        "Here all_gather needs the same shape on every rank. How does a rank learn how long the "
        "others' tensors are?",
        "The lengths are one number per rank: gather them first. Then every rank knows the "
        "longest, and can pad its own tensor to that length.",
        "After the second all_gather every rank has all padded tensors and all lengths: cut, "
        "then join.",
    ),
    seconds=30,
)
