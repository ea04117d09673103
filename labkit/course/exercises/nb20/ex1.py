"""Exercise 20-1: let every rank know whether all ranks have trained what one process trains."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, rank_simulated, simulated, some_rank

REFERENCE, TOLERANCE = 0.5, 0.25
#: What is tried: a name, and the loss of a rank among so many. Sixteenths are exact.
CASES: tuple[tuple[str, Callable[[int, int], float]], ...] = (
    ("all losses are 0.6875", lambda rank, n: 0.6875),
    ("the last rank's loss is 2", lambda rank, n: 2.0 if rank == n - 1 else 0.5),
    ("the last rank's loss is -2", lambda rank, n: -2.0 if rank == n - 1 else 0.5),
    (
        "rank 0's loss is 2.5, rank 1's -1.5",
        lambda rank, n: (2.5, -1.5)[rank] if rank < 2 else 0.5,
    ),
    ("all losses are 2", lambda rank, n: 2.0),
    (
        "the last rank's loss is 0.75, at the tolerance",
        lambda rank, n: 0.75 if rank == n - 1 else 0.5,
    ),
    ("the last rank's loss is NaN", lambda rank, n: math.nan if rank == n - 1 else 0.5),
)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(loss(here.rank, here.world_size), REFERENCE, TOLERANCE) for _, loss in CASES]


def _is_near(loss: float) -> bool:
    return abs(loss - REFERENCE) <= TOLERANCE


def _told(verdict: Callable[[list[float]], Any]) -> Callable[[int], list[list[Any]]]:
    """Return what all ranks give if a verdict is made from all ranks' losses."""
    return lambda n: [[verdict([loss(r, n) for r in range(n)]) for _, loss in CASES]] * n


def _gives(verdict: Callable[[list[float]], Any]) -> Predicate:
    return simulated(_told(verdict))


expected = _told(lambda losses: all(map(_is_near, losses)))


EXERCISE = Exercise(
    id="20-1",
    title="Prove a step",
    answer="agrees",
    trial=trial,
    expected=expected,
    entries=tuple(name for name, _ in CASES),
    goals=(Goal("collectives", most=lambda n: len(CASES)),),
    mistakes=(
        Mistake(
            "Each rank answers for itself. The ranks have to agree: if one of them is wrong, all "
            "return False.",
            when=rank_simulated(lambda r, n: [_is_near(loss(r, n)) for _, loss in CASES]),
        ),
        Mistake(
            "That is rank 0's answer, given to all. Another rank may be wrong while rank 0 is "
            "right.",
            when=_gives(lambda losses: _is_near(losses[0])),
        ),
        Mistake(
            "One rank that is right is enough for your True. All of them have to be right: combine "
            "their answers with MIN.",
            when=_gives(lambda losses: any(map(_is_near, losses))),
        ),
        Mistake(
            "You compare the mean of the losses. An error of +2 on one rank and one of -2 on "
            "another cancel in it: compare each loss by itself.",
            when=_gives(lambda losses: _is_near(sum(losses) / len(losses))),
        ),
        Mistake(
            "You compare the ranks with each other. They may all have the same wrong loss: compare "
            "with the reference.",
            when=lambda yours, expected, n: (
                n > 1 and [y[4] for y in yours] == [True] * n and not any(y[1] for y in yours)
            ),
        ),
        Mistake(
            "A loss of NaN gets True. Every comparison with NaN is False, so ask what has to hold "
            "(error <= tolerance), not what must not; and ask on each rank, before the reduction: "
            "MAX may lose a NaN.",
            when=_gives(lambda losses: not any(abs(x - REFERENCE) > TOLERANCE for x in losses)),
        ),
        Mistake(
            "A loss far below the reference gets True: take the absolute value of the difference.",
            when=_gives(lambda losses: all(x - REFERENCE <= TOLERANCE for x in losses)),
        ),
        Mistake(
            "`tolerance` is the largest distance itself, in the units of the loss: do not "
            "multiply it by the reference.",
            when=_gives(
                lambda losses: all(abs(x - REFERENCE) <= TOLERANCE * REFERENCE for x in losses)
            ),
        ),
        Mistake(
            "You add up the distances of all ranks. Each by itself may be as large as "
            "`tolerance`: let each rank compare its own, and combine the answers.",
            when=_gives(lambda losses: sum(abs(x - REFERENCE) for x in losses) <= TOLERANCE),
        ),
        Mistake(
            "A loss that is exactly `tolerance` away gets False; the text says at most: <=.",
            when=_gives(lambda losses: all(abs(x - REFERENCE) < TOLERANCE for x in losses)),
        ),
        Mistake(
            "Not every rank makes the call, and the others wait for it: every rank has to make it, "
            "whether its loss is right or wrong.",
            stuck=r"all_reduce|all_gather|broadcast|reduce",
        ),
        Mistake(
            "Return a bool, True or False: bool(…) makes one from a tensor of one element.",
            when=some_rank(
                lambda mine, its: any(y is not None and not isinstance(y, bool) for y in mine)
            ),
        ),
        Mistake(
            "The result is right, but it takes more than one collective per call: one number per "
            "rank, right (1) or wrong (0), is enough.",
            missed="collectives",
        ),
    ),
    hints=(
        "Each rank can say whether its own loss is right. What combines the ranks' answers?",
        "All are right if the least of the answers 0 (wrong) and 1 (right) is 1.",
        "Put the answer into an integer tensor on `device`, all-reduce it, and make it a bool.",
    ),
)
