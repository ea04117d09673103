"""Exercise 16-1: find the k largest of all ranks' numbers without sending all of them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...answers import body, edit
from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake, Wrong

FLOAT = 4  #: bytes

TOP = 3  #: how many are asked for


def _scores(rank: int) -> torch.Tensor:
    """Return twelve numbers, no two of any rank alike; the best three are not of three ranks."""
    return torch.tensor([(29.0 * i + 17 * rank) % 97 + 8 * rank for i in range(12)])


def _best(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.topk(TOP).values


def trial(answer: Callable[[torch.Tensor, int], torch.Tensor], here: Here) -> torch.Tensor:
    """Give this rank's numbers, ask for the largest of all ranks."""
    return answer(_scores(here.rank).to(here.device), TOP)


def expected(world_size: int) -> list[torch.Tensor]:
    """Look through all numbers in one process."""
    return [_best(torch.cat([_scores(r) for r in range(world_size)]))] * world_size


EXERCISE = Exercise(
    id="16-1",
    title="Find the largest numbers of all ranks",
    answer="largest_of_all",
    trial=trial,
    expected=expected,
    forbids=("all_gather_object", "gather_object"),
    goals=(
        Goal("collectives", exactly=lambda n: 1),
        Goal("bytes sent", most=lambda n: FLOAT * TOP),
    ),
    mistakes=(
        Mistake(
            "Those are the largest numbers of the rank itself: nothing has crossed between ranks.",
            when=lambda yours, expected, n: same(yours, [_best(_scores(r)) for r in range(n)]),
            shown_by={
                "talks to nobody": body("return x.topk(k).values"),
                "returns what it brought": edit("return everyone.topk(k).values", "return mine"),
            },
        ),
        Mistake(
            "Each rank brings only its largest number, but two of the largest may be on the "
            "same rank: bring k of each.",
            when=lambda yours, expected, n: same(
                yours, [_best(torch.stack([_scores(r).max() for r in range(n)]))] * n
            ),
            shown_by={
                "brings one number": body("""
                    everyone = torch.empty(world_size, device=device)
                    dist.all_gather_into_tensor(everyone, x.max().view(1))
                    return everyone.topk(k).values
                """),
            },
        ),
        Mistake(
            "That is everything that was gathered, k numbers of each rank: choose the k "
            "largest among them once more.",
            when=lambda yours, expected, n: all(y.numel() == TOP * n for y in yours),
            shown_by={
                "forgets to choose again": edit("return everyone.topk(k).values", "return everyone")
            },
        ),
        Mistake(
            "Those are the largest of each place: MAX compares first with first and second "
            "with second. Bring the numbers together, then choose.",
            when=lambda yours, expected, n: same(
                yours, [torch.stack([_best(_scores(r)) for r in range(n)]).max(0).values] * n
            ),
            shown_by={
                "compares place by place": body("""
                    mine = x.topk(k).values
                    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
                    return mine
                """),
            },
        ),
        Mistake(
            "The numbers are right, but every rank brings all that it has. None but its own k "
            "largest can be among the k largest of all.",
            missed="bytes sent",
            shown_by={
                "brings everything": body("""
                    everyone = torch.empty(world_size * len(x), device=device)
                    dist.all_gather_into_tensor(everyone, x)
                    return everyone.topk(k).values
                """),
            },
        ),
    ),
    also_wrong={
        "lets objects do it": Wrong(
            body("""
                lists = [None] * world_size
                dist.all_gather_object(lists, x.topk(k).values.tolist())
                return torch.tensor(sum(lists, [])).topk(k).values
            """),
            says="forbidden: all_gather_object",
        ),
    },
    another=body("""
        mine = x.sort(descending=True).values[:k].contiguous()
        lists = [torch.empty_like(mine) for _ in range(world_size)]
        dist.all_gather(lists, mine)
        return torch.cat(lists).sort(descending=True).values[:k]
    """),
    hints=(
        "Which of a rank's numbers can be among the k largest of all? No more than k.",
        "Take the k largest of x, gather those of all ranks into one tensor of "
        "world_size * k, and take the k largest of that.",
        "mine = x.topk(k).values; everyone = torch.empty(world_size * k, device=device); "
        "dist.all_gather_into_tensor(everyone, mine); return everyone.topk(k).values.",
    ),
)
