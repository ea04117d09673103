"""Exercise 00-2: deal ten numbers to the ranks like cards, with a slice that depends on the
rank."""

from __future__ import annotations

from collections.abc import Callable

from ...answers import body, edit
from ...exercise import Exercise, Failed, Here, Mistake, Wrong

#: As many as there are letters; no multiple of four.
NUMBERS = tuple(range(100, 110))


def trial(answer: Callable[[list[int]], list[int]], here: Here) -> list[int]:
    """Ask for this rank's share of ten numbers."""
    return answer(list(NUMBERS))


def expected(world_size: int) -> list[list[int]]:
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


EXERCISE = Exercise(
    id="00-2",
    title="Deal out the work",
    answer="my_numbers",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "Every rank takes the same numbers: where the slice begins has to depend on rank.",
            when=lambda yours, expected, n: (
                all(mine == yours[0] for mine in yours)
                and yours[0] is not None
                and not isinstance(yours[0], Failed)
            ),
            shown_by={"forgets the start": edit("rank::world_size", "::world_size")},
        ),
        Mistake(
            "Each rank takes one number only, so most of them are left: go on in steps.",
            when=lambda yours, expected, n: all(
                mine in (NUMBERS[r], [NUMBERS[r]]) for r, mine in enumerate(yours)
            ),
            shown_by={"takes one": edit("rank::world_size", "rank")},
        ),
        Mistake(
            "Each rank takes a block of neighbours; deal them like cards instead, one to each "
            "rank in turn.",
            when=lambda yours, expected, n: yours in _blocks(n),
            shown_by={
                "cuts blocks": body("""
                    size = len(numbers) // world_size
                    return numbers[rank * size : (rank + 1) * size]
                """),
            },
        ),
    ),
    also_wrong={
        "swaps start and step": Wrong(
            edit("rank::world_size", "world_size :: rank + 1"), says="different"
        ),
    },
    another=body("return [number for i, number in enumerate(numbers) if i % world_size == rank]"),
    hints=(
        "Rank 0 takes numbers[0], then the one that is world_size further on, and so on.",
        "A slice can have steps: numbers[start::step].",
        "Rank r starts at position r: numbers[rank::…]",
    ),
)
