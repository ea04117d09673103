"""Exercise 00-4: count the ranks for which something holds, with one all_reduce in which all
take part."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake


def _flag(rank: int) -> bool:
    return rank != 1


def trial(answer: Callable[[bool], int], here: Here) -> int:
    """Count the ranks for which something holds: all but rank 1."""
    return answer(_flag(here.rank))


def expected(world_size: int) -> list[int]:
    """Count them in one process."""
    return [sum(_flag(r) for r in range(world_size))] * world_size


EXERCISE = Exercise(
    id="00-4",
    title="Count the ranks that agree",
    answer="how_many",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "Only the ranks with flag = True make the call, and they wait for the others. A "
            "collective is a meeting: everybody comes, and some bring a 0.",
            stuck=r"Cause: The call stands under a condition",
            shown_by={
                "calls under a condition": body("""
                    count = torch.tensor(1, device=device)
                    if flag:
                        dist.all_reduce(count)
                    return count.item()
                """),
            },
        ),
        Mistake(
            "Each rank counts itself alone: add up over the ranks.",
            when=lambda yours, expected, n: (
                [y + 0 for y in yours] == [int(_flag(r)) for r in range(n)]
            ),
            shown_by={"counts itself": body("return int(flag)")},
        ),
        Mistake(
            "That is a tensor; return a number. t.item() is the number in a tensor with one "
            "element.",
            when=lambda yours, expected, n: all(isinstance(y, torch.Tensor) for y in yours),
            shown_by={"returns the tensor": edit("return count.item()", "return count")},
        ),
        Mistake(
            "That says whether anybody has True, not how many: a bool cannot count, and MAX "
            "does not add.",
            when=lambda yours, expected, n: all(y == 1 for y in yours),
            shown_by={
                "takes the largest": edit(
                    "dist.all_reduce(count)", "dist.all_reduce(count, op=dist.ReduceOp.MAX)"
                )
            },
        ),
    ),
    another=body("""
        flags = [torch.zeros(1, device=device) for _ in range(world_size)]
        dist.all_gather(flags, torch.tensor([float(flag)], device=device))
        return int(sum(flags).item())
    """),
    hints=(
        "A rank with True brings a 1, a rank with False a 0. What is the sum?",
        "Make a tensor of int(flag) on every rank, on the rank's device.",
        "Call dist.all_reduce on it, outside of any if, and return its .item().",
    ),
)
