"""The exercises of notebook 00: first steps on four ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..compare import same
from ..exercise import Exercise, Failed, Goal, Here, Mistake
from ..mistakes import failed

# -- 00-1 ---------------------------------------------------------------------------------------


def trial_neighbour(answer: Callable[[], int], here: Here) -> int:
    """Ask for the neighbour."""
    return answer()


def expected_neighbour(world_size: int) -> list[int]:
    """Count on by one, and round at the end."""
    return [(r + 1) % world_size for r in range(world_size)]


# -- 00-2 ---------------------------------------------------------------------------------------

#: As many as there are letters; no multiple of four.
NUMBERS = tuple(range(100, 110))


def trial_share(answer: Callable[[list[int]], list[int]], here: Here) -> list[int]:
    """Ask for this rank's share of ten numbers."""
    return answer(list(NUMBERS))


def expected_share(world_size: int) -> list[list[int]]:
    """Deal the numbers like cards."""
    hands: list[list[int]] = [[] for _ in range(world_size)]
    for position, number in enumerate(NUMBERS):
        hands[position % world_size].append(number)
    return hands


def _blocks(world_size: int) -> list[list[list[int]]]:
    """Return the ways to cut the numbers into one block a rank."""
    ways = []
    for size in (len(NUMBERS) // world_size, -(-len(NUMBERS) // world_size)):
        ways.append([list(NUMBERS[r * size : (r + 1) * size]) for r in range(world_size)])
    return ways


# -- 00-3 ---------------------------------------------------------------------------------------


def _grade(rank: int) -> list[float]:
    return [rank + 1.0, 10.0 * rank]


def trial_average(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> torch.Tensor:
    """Average two numbers a rank."""
    return answer(torch.tensor(_grade(here.rank), device=here.device))


def expected_average(world_size: int) -> list[torch.Tensor]:
    """Average all ranks' tensors in one process."""
    everyone = torch.tensor([_grade(r) for r in range(world_size)])
    return [everyone.mean(0)] * world_size


# -- 00-4 ---------------------------------------------------------------------------------------


def _flag(rank: int) -> bool:
    return rank != 1


def trial_count(answer: Callable[[bool], int], here: Here) -> int:
    """Count the ranks for which something holds: all but rank 1."""
    return answer(_flag(here.rank))


def expected_count(world_size: int) -> list[int]:
    """Count them in one process."""
    return [sum(_flag(r) for r in range(world_size))] * world_size


EXERCISES = (
    Exercise(
        id="00-1",
        title="Name your neighbour",
        answer="neighbour",
        trial=trial_neighbour,
        expected=expected_neighbour,
        mistakes=(
            Mistake(
                "The last rank names a rank that does not exist: after the last one it goes on "
                "with rank 0.",
                when=lambda yours, expected, n: yours == [r + 1 for r in range(n)],
            ),
            Mistake(
                "That is the neighbour on the other side: the next rank is one more, not one less.",
                when=lambda yours, expected, n: yours in (
                    [(r - 1) % n for r in range(n)], [r - 1 for r in range(n)]),
            ),
            Mistake(
                "That is the rank itself, not its neighbour.",
                when=lambda yours, expected, n: yours == list(range(n)),
            ),
        ),
        hints=(
            "Each rank knows its own number as rank. What is the next one's?",
            "rank + 1 is right for all ranks but the last. Its neighbour is rank 0.",
            "The remainder does that: (rank + 1) % world_size.",
        ),
    ),
    Exercise(
        id="00-2",
        title="Deal out the work",
        answer="my_numbers",
        trial=trial_share,
        expected=expected_share,
        mistakes=(
            Mistake(
                "Every rank takes the same numbers: where the slice begins has to depend on rank.",
                when=lambda yours, expected, n: all(mine == yours[0] for mine in yours)
                and yours[0] is not None and not isinstance(yours[0], Failed),
            ),
            Mistake(
                "Each rank takes one number only, so most of them are left: go on in steps.",
                when=lambda yours, expected, n: all(
                    mine in (NUMBERS[r], [NUMBERS[r]]) for r, mine in enumerate(yours)),
            ),
            Mistake(
                "Each rank takes a block of neighbours; deal them like cards instead, one to each "
                "rank in turn.",
                when=lambda yours, expected, n: yours in _blocks(n),
            ),
        ),
        hints=(
            "Rank 0 takes numbers[0], then the one that is world_size further on, and so on.",
            "A slice can have steps: numbers[start::step].",
            "Rank r starts at position r: numbers[rank::…]",
        ),
    ),
    Exercise(
        id="00-3",
        title="Average over the ranks",
        answer="average_of_all",
        trial=trial_average,
        expected=expected_average,
        goals=(Goal("collectives", exactly=lambda n: 1),),
        mistakes=(
            Mistake(
                "dist.all_reduce changes the tensor that it is given and returns None: call it on "
                "a line of its own.",
                when=lambda yours, expected, n: failed(yours, "TypeError"),
            ),
            Mistake(
                "That is the sum: divide it by the number of ranks.",
                when=lambda yours, expected, n: same(yours, [t * n for t in expected]),
            ),
            Mistake(
                "You divide twice, before the all_reduce and after it; once is enough.",
                when=lambda yours, expected, n: same(yours, [t / n for t in expected]),
            ),
            Mistake(
                "Each rank has its own numbers still: nothing was added up across ranks.",
                when=lambda yours, expected, n: same(
                    yours, [torch.tensor(_grade(r)) for r in range(n)])
                or same(yours, [torch.tensor(_grade(r)) / n for r in range(n)]),
            ),
        ),
        hints=(
            "An average is a sum, divided by how many there are.",
            "dist.all_reduce(x) turns x into the sum over all ranks, in place.",
            "After it, return x divided by world_size.",
        ),
    ),
    Exercise(
        id="00-4",
        title="Count the ranks that agree",
        answer="how_many",
        trial=trial_count,
        expected=expected_count,
        goals=(Goal("collectives", exactly=lambda n: 1),),
        mistakes=(
            Mistake(
                "Only the ranks with flag = True make the call, and they wait for the others. A "
                "collective is a meeting: everybody comes, and some bring a 0.",
                when=lambda yours, expected, n: failed(yours, "Deadlock"),
            ),
            Mistake(
                "Each rank counts itself alone: add up over the ranks.",
                when=lambda yours, expected, n: [y + 0 for y in yours]
                == [int(_flag(r)) for r in range(n)],
            ),
            Mistake(
                "That is a tensor; return a number. t.item() is the number in a tensor with one "
                "element.",
                when=lambda yours, expected, n: all(isinstance(y, torch.Tensor) for y in yours),
            ),
            Mistake(
                "That says whether anybody has True, not how many: a bool cannot count, and MAX "
                "does not add.",
                when=lambda yours, expected, n: all(y == 1 for y in yours),
            ),
        ),
        hints=(
            "A rank with True brings a 1, a rank with False a 0. What is the sum?",
            "Make a tensor of int(flag) on every rank, on the rank's device.",
            "Call dist.all_reduce on it, outside of any if, and return its .item().",
        ),
    ),
)  # fmt: skip
