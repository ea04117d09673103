"""Exercise 00-3: average a tensor over the ranks with one all_reduce."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...answers import body, edit
from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake, Wrong


def _grade(rank: int) -> list[float]:
    return [rank + 1.0, 10.0 * rank]


def trial(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> torch.Tensor:
    """Average two numbers a rank."""
    return answer(torch.tensor(_grade(here.rank), device=here.device))


def expected(world_size: int) -> list[torch.Tensor]:
    """Average all ranks' tensors in one process."""
    everyone = torch.tensor([_grade(r) for r in range(world_size)])
    return [everyone.mean(0)] * world_size


EXERCISE = Exercise(
    id="00-3",
    title="Average over the ranks",
    answer="average_of_all",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "dist.all_reduce changes the tensor that it is given and returns None: call it on "
            "a line of its own.",
            raises=r"'NoneType'",
            shown_by={
                "uses what all_reduce returns": body("return dist.all_reduce(x) / world_size")
            },
        ),
        Mistake(
            "That is the sum: divide it by the number of ranks.",
            when=lambda yours, expected, n: same(yours, [t * n for t in expected]),
            shown_by={"returns the sum": edit("return x / world_size", "return x")},
        ),
        Mistake(
            "You divide twice, before the all_reduce and after it; once is enough.",
            when=lambda yours, expected, n: same(yours, [t / n for t in expected]),
            shown_by={
                "divides twice": edit(
                    "dist.all_reduce(x)",
                    """
                    x = x / world_size
                    dist.all_reduce(x)
                    """,
                ),
            },
        ),
        Mistake(
            "Each rank has its own numbers still: nothing was added up across ranks.",
            when=lambda yours, expected, n: (
                same(yours, [torch.tensor(_grade(r)) for r in range(n)])
                or same(yours, [torch.tensor(_grade(r)) / n for r in range(n)])
            ),
            shown_by={"talks to nobody": edit("dist.all_reduce(x)", "")},
        ),
    ),
    also_wrong={
        "one call for each number": Wrong(
            edit(
                "dist.all_reduce(x)",
                """
                for i in range(len(x)):
                    dist.all_reduce(x[i])
                """,
            ),
            says="goal: collectives",
        ),
    },
    another=body("""
        y = x / world_size
        dist.all_reduce(y)
        return y
    """),
    hints=(
        "An average is a sum, divided by how many there are.",
        "dist.all_reduce(x) turns x into the sum over all ranks, in place.",
        "After it, return x divided by world_size.",
    ),
)
