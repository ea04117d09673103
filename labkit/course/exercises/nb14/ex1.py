"""Exercise 14-1: let every rank know whether all ranks have trained what one process trains."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import would_give

REFERENCE, TOLERANCE = 0.5, 0.25
#: What is tried: a name, and the loss of a rank among so many. Sixteenths are
#: exact.
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


def _losses(loss: Callable[[int, int], float], n: int) -> list[float]:
    return [loss(rank, n) for rank in range(n)]


def _is_near(loss: float) -> bool:
    return abs(loss - REFERENCE) <= TOLERANCE


def _told(verdict: Callable[[list[float]], Any]) -> Callable[[int], list[list[Any]]]:
    """Return what all ranks give if a verdict is made from all ranks' losses."""
    return lambda n: [[verdict(_losses(loss, n)) for _, loss in CASES] for _ in range(n)]


expected = _told(lambda losses: all(map(_is_near, losses)))


def _own(n: int) -> list[list[bool]]:
    return [[_is_near(loss(rank, n)) for _, loss in CASES] for rank in range(n)]


EXERCISE = Exercise(
    id="14-1",
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
            when=would_give(_own),
            shown_by={"its own loss only": body("return abs(loss - reference) <= tolerance")},
        ),
        Mistake(
            "That is rank 0's answer, given to all. Another rank may be wrong while rank 0 is "
            "right.",
            when=would_give(_told(lambda losses: _is_near(losses[0]))),
            shown_by={
                "rank 0 answers for all": edit(
                    "dist.all_reduce(ok, op=dist.ReduceOp.MIN)", "dist.broadcast(ok, 0)"
                )
            },
        ),
        Mistake(
            "One rank that is right is enough for your True. All of them have to be right: combine "
            "their answers with MIN.",
            when=would_give(_told(lambda losses: any(map(_is_near, losses)))),
            shown_by={
                "one is enough": edit("ReduceOp.MIN", "ReduceOp.MAX"),
                "counts to one": edit(", op=dist.ReduceOp.MIN", ""),
            },
        ),
        Mistake(
            "You compare the mean of the losses. An error of +2 on one rank and one of -2 on "
            "another cancel in it: compare each loss by itself.",
            when=would_give(_told(lambda losses: _is_near(sum(losses) / len(losses)))),
            shown_by={
                "compares the mean": body("""
                    mean = torch.tensor(loss, dtype=torch.float64, device=device)
                    dist.all_reduce(mean)
                    return abs(mean.item() / world_size - reference) <= tolerance
                """)
            },
        ),
        Mistake(
            "You compare the ranks with each other. They may all have the same wrong loss: compare "
            "with the reference.",
            when=lambda yours, expected, n: (
                n > 1 and [y[4] for y in yours] == [True] * n and not any(y[1] for y in yours)
            ),
            shown_by={
                "compares the ranks": body("""
                    ends = torch.tensor([loss, -loss], dtype=torch.float64, device=device)
                    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
                    return bool(ends.sum() <= 2 * tolerance)
                """)
            },
        ),
        Mistake(
            "A loss of NaN gets True. Every comparison with NaN is False, so ask what has to hold "
            "(error <= tolerance), not what must not; and ask on each rank, before the reduction: "
            "MAX may lose a NaN.",
            when=would_give(
                _told(lambda losses: not any(abs(x - REFERENCE) > TOLERANCE for x in losses))
            ),
            shown_by={
                "looks for errors": edit(
                    "int(abs(loss - reference) <= tolerance)",
                    "int(not abs(loss - reference) > tolerance)",
                ),
                "the largest error": body("""
                    error = torch.tensor(abs(loss - reference), device=device)
                    dist.all_reduce(error, op=dist.ReduceOp.MAX)
                    return error.item() <= tolerance
                """),
            },
        ),
        Mistake(
            "A loss far below the reference gets True: take the absolute value of the difference.",
            when=would_give(_told(lambda losses: all(x - REFERENCE <= TOLERANCE for x in losses))),
            shown_by={"without abs": edit("abs(loss - reference)", "(loss - reference)")},
        ),
        Mistake(
            "`tolerance` is the largest distance itself, in the units of the loss: do not "
            "multiply it by the reference.",
            when=would_give(
                _told(
                    lambda losses: all(abs(x - REFERENCE) <= TOLERANCE * REFERENCE for x in losses)
                )
            ),
            shown_by={
                "a share of the reference": edit("<= tolerance", "<= tolerance * abs(reference)"),
                "torch's isclose": edit(
                    "int(abs(loss - reference) <= tolerance)",
                    "int(math.isclose(loss, reference, rel_tol=tolerance))",
                    "ok =",
                    "import math\n\nok =",
                ),
            },
        ),
        Mistake(
            "You add up the distances of all ranks. Each by itself may be as large as "
            "`tolerance`: let each rank compare its own, and combine the answers.",
            when=would_give(
                _told(lambda losses: sum(abs(x - REFERENCE) for x in losses) <= TOLERANCE)
            ),
            shown_by={
                "adds up the distances": body("""
                    distance = torch.tensor(abs(loss - reference), device=device)
                    dist.all_reduce(distance)
                    return distance.item() <= tolerance
                """),
                "adds up, and asks for all": body("""
                    distances = [torch.zeros(1, device=device) for _ in range(world_size)]
                    dist.all_gather(distances, torch.tensor([abs(loss - reference)], device=device))
                    return bool(sum(distances) <= tolerance)
                """),
            },
        ),
        Mistake(
            "A loss that is exactly `tolerance` away gets False; the text says at most: <=.",
            when=would_give(
                _told(lambda losses: all(abs(x - REFERENCE) < TOLERANCE for x in losses))
            ),
            shown_by={"less than": edit("<= tolerance", "< tolerance")},
        ),
        Mistake(
            "Not every rank makes the call, and the others wait for it: every rank has to make it, "
            "whether its loss is right or wrong.",
            stuck=r"all_reduce|all_gather|broadcast|reduce",
            shown_by={
                "rank 0 stays away": edit(
                    "dist.all_reduce(ok, op=dist.ReduceOp.MIN)",
                    "if rank > 0:\n    dist.all_reduce(ok, op=dist.ReduceOp.MIN)",
                ),
                "leaves early": body("""
                    if not abs(loss - reference) <= tolerance:
                        return False
                    ok = torch.tensor(1, device=device)
                    dist.all_reduce(ok, op=dist.ReduceOp.MIN)
                    return bool(ok)
                """),
            },
        ),
        Mistake(
            "Return a bool, True or False: bool(…) makes one from a tensor of one element.",
            when=lambda yours, expected, n: any(
                item is not None and not isinstance(item, bool) for rank in yours for item in rank
            ),
            shown_by={"returns a tensor": edit("return bool(ok)", "return ok")},
        ),
        Mistake(
            "The result is right, but it takes more than one collective per call: one number per "
            "rank, right (1) or wrong (0), is enough.",
            missed="collectives",
            shown_by={
                "asks twice": edit(
                    "return bool(ok)",
                    """
                    dist.broadcast(ok, 0)
                    return bool(ok)
                    """,
                )
            },
        ),
    ),
    another=body("""
        every = [None] * world_size
        dist.all_gather_object(every, loss)
        return all(abs(one - reference) <= tolerance for one in every)
    """),
    hints=(
        "Each rank can say whether its own loss is right. What combines the ranks' answers?",
        "All are right if the least of the answers 0 (wrong) and 1 (right) is 1.",
        "Put the answer into an integer tensor on `device`, all-reduce it, and make it a bool.",
    ),
)
