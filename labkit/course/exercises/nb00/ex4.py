"""Exercise 00-4: count the ranks for which something holds, with one all_reduce in which all
take part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...compare import number
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, every_rank, simulated
from .reduced import left_by_reduce

#: The calls, and on which of n ranks their flag is True: not equally often on all, or ranks that
#: make the collective only if it is True would meet in the next one.
FLAGS: dict[str, Callable[[int, int], bool]] = {
    "how_many(rank != 0)": lambda rank, n: rank != 0,
    "how_many(True)": lambda rank, n: True,
    "how_many(False)": lambda rank, n: False,
    "how_many(rank == 1)": lambda rank, n: rank == 1,
}


def trial(answer: Callable[[bool], Any], here: Here) -> Any:
    """Count the ranks for some flags; an answer that waits for a rank shows it with the first."""
    counts = [number(answer(flag(here.rank, here.world_size))) for flag in FLAGS.values()]
    return None if all(count is None for count in counts) else counts


def _count(flag: Callable[[int, int], bool], n: int) -> int:
    return sum(flag(r, n) for r in range(n))


def expected(world_size: int) -> list[list[int]]:
    return [[_count(flag, world_size) for flag in FLAGS.values()]] * world_size


def _each(give: Callable[[Callable[[int, int], bool], int, int], Any]) -> Predicate:
    """Return the predicate of ``give(flag, rank, n)`` in place of the right count."""
    return simulated(lambda n: [[give(flag, r, n) for flag in FLAGS.values()] for r in range(n)])


def _reduced(yours: Any, expected: Any, n: int) -> bool:
    flags = [[float(flag(r, n)) for flag in FLAGS.values()] for r in range(n)]
    return left_by_reduce(yours, [torch.tensor(own) for own in flags])


EXERCISE = Exercise(
    id="00-4",
    title="Count the ranks that agree",
    answer="how_many",
    trial=trial,
    expected=expected,
    entries=tuple(FLAGS),
    goals=(Goal("collectives", exactly=lambda n: len(FLAGS)),),
    mistakes=(
        Mistake(
            "Not every rank makes the call, and those that do wait for the others. Make it on "
            "every rank, whatever its number and its flag: one with False contributes a 0.",
            stuck=r"waits? in (?:all_)?reduce[\s\S]*(?:condition|ended)",
            hint="Move the collective out of the if: only what a rank contributes depends on flag.",
        ),
        Mistake(
            "Each rank counts only itself: add up over the ranks.",
            when=_each(lambda flag, r, n: int(flag(r, n))),
        ),
        Mistake(
            "Not every rank has the number: dist.reduce gives the sum to one rank only. "
            "dist.all_reduce gives it to all.",
            when=_reduced,
        ),
        Mistake(
            "That is the flag of one rank: dist.broadcast gives it to all, and counts nothing. The "
            "flags of all ranks have to be added up.",
            when=_each(lambda flag, r, n: int(flag(0, n)))
            | _each(lambda flag, r, n: int(flag(n - 1, n))),
        ),
        Mistake(
            "That is every rank's flag in a list: return how many of them are True.",
            when=every_rank(lambda mine, its: isinstance(mine[0], list | tuple | torch.Tensor)),
        ),
        Mistake(
            "That says whether flag is True on any rank, not on how many: a tensor of bool cannot "
            "count, and MAX does not add.",
            when=every_rank(lambda mine, its: [float(y) for y in mine] == [e > 0 for e in its]),
        ),
        Mistake(
            "dist.all_reduce adds up tensors: make one from the flag.",
            raises=r"^TypeError: Invalid function argument\. Expected parameter `tensor`",
        ),
        Mistake(
            "dist.all_reduce changes its tensor and returns None: call it on a line of its own.",
            raises=r"'NoneType' object has no attribute 'item'",
        ),
        Mistake(
            "That is the fraction of the ranks. Their number is the sum itself: do not divide it.",
            when=_each(lambda flag, r, n: _count(flag, n) / n),
        ),
        Mistake(
            "That is the number of ranks with False.",
            when=_each(lambda flag, r, n: n - _count(flag, n)),
        ),
        Mistake(
            "Every rank contributes a 1, whatever its flag: contribute a 0 where it is False.",
            when=_each(lambda flag, r, n: n),
        ),
        Mistake(
            "One all_reduce per call is enough: afterwards every rank has the sum.",
            missed="collectives",
        ),
    ),
    hints=(
        "A rank with True contributes a 1, a rank with False a 0. What is the sum?",
        "Make a tensor of int(flag) on every rank, on the rank's device. Which ranks have to call "
        "dist.all_reduce on it?",
        "All of them, outside of any if. Then the tensor holds the number; .item() takes it out.",
    ),
)
