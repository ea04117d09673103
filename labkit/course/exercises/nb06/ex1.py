"""Exercise 06-1: deal the images to the ranks as DistributedSampler does: equally many for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body
from ...exercise import Exercise, Here, Mistake, Wrong
from ...mistakes import When

#: (images, ranks)
DEALS = ((8, 4), (10, 4), (7, 3), (2, 5))


def trial(answer: Callable[..., Any], here: Here) -> list[list[list[int]]]:
    return [[[int(i) for i in answer(c, r, n)] for r in range(n)] for c, n in DEALS]


def _deal(count: int, rank: int, world_size: int) -> list[int]:
    """Return what torch's own sampler deals."""
    from torch.utils.data import DistributedSampler

    images: Any = range(count)
    return list(DistributedSampler(images, world_size, rank, shuffle=False))


def expected() -> list[list[list[int]]]:
    return [[_deal(c, r, n) for r in range(n)] for c, n in DEALS]


def _dealt(play: Callable[[int, int, int], list[int]]) -> When:
    """Return the predicate of dealing ``play(count, rank, world_size)``."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return bool(yours == [[play(c, r, k) for r in range(k)] for c, k in DEALS])

    return when


def _once_more(count: int, rank: int, world_size: int) -> list[int]:
    images = list(range(count))
    return (images + images[: -count % world_size])[rank::world_size]


def _block(count: int, rank: int, world_size: int) -> list[int]:
    each = -(-count // world_size)
    return [i % count for i in range(rank * each, (rank + 1) * each)]


EXERCISE = Exercise(
    id="06-1",
    title="Deal the cards",
    answer="deal",
    trial=trial,
    expected=expected,
    entries=tuple(f"deal({count}, rank, {n}) for each rank" for count, n in DEALS),
    where="notebook",
    mistakes=(
        Mistake(
            "Each rank has a contiguous block. The sampler deals in turns: rank r gets positions "
            "r, r + n, r + 2n, …",
            when=_dealt(_block),
            shown_by={
                "blocks": body("""
                    each = -(-count // world_size)
                    return [i % count for i in range(rank * each, (rank + 1) * each)]
                """),
            },
        ),
        Mistake(
            "The ranks get different numbers of images: of ten, two ranks get three and two get "
            "two, and those run out of batches first. Repeat images from the beginning until all "
            "have three.",
            when=_dealt(lambda c, r, n: list(range(r, c, n))),
            shown_by={"nothing is filled up": body("return list(range(rank, count, world_size))")},
        ),
        Mistake(
            "Images are lost: of ten, each of four ranks gets two, and no rank gets images 8 and "
            "9. Round the number per rank up, not down.",
            when=_dealt(lambda c, r, n: list(range(r, c - c % n, n))),
            shown_by={
                "drops the rest": body("""
                    each = count // world_size
                    return list(range(count))[: each * world_size][rank::world_size]
                """),
            },
        ),
        Mistake(
            "The images are repeated at most once. With 2 images for 5 ranks, 3 are missing, more "
            "than there are: begin again as often as it takes.",
            when=_dealt(_once_more),
            shown_by={
                "begins again once": body("""
                    cards = list(range(count))
                    missing = -count % world_size
                    cards += cards[:missing]
                    return cards[rank::world_size]
                """),
            },
        ),
        Mistake(
            "You repeat the rank's own images. The missing ones are taken from the beginning of "
            "all images: 0, 1, …",
            when=_dealt(
                lambda c, r, n: (
                    (own := list(range(r, c, n))) + own[: -(-c // n)][: -(-c // n) - len(own)]
                )
            ),
            shown_by={
                "fills up with its own": body("""
                    cards = list(range(count))[rank::world_size]
                    if len(cards) < -(-count // world_size):
                        cards += cards[:1]
                    return cards
                """),
            },
        ),
    ),
    also_wrong={
        "everything for everybody": Wrong(body("return list(range(count))"), says="different"),
        "prints it": Wrong(
            body("""
                each = -(-count // world_size)
                print([i % count for i in range(each * world_size)][rank::world_size])
            """),
            says="TypeError",
        ),
    },
    another=body("""
        mine = []
        position = rank
        while len(mine) < (count + world_size - 1) // world_size:
            mine.append(position % count)
            position += world_size
        return mine
    """),
    hints=(
        "Each rank gets count divided by world_size images, rounded up.",
        "First make the list of all indices that are dealt, which begins again at 0 after the "
        "last image. Then take every world_size-th of it, beginning at position rank.",
        "If each is the number per rank, the list has each * world_size entries; % count makes "
        "it begin again at 0. A slice with a start and a step takes one rank's share.",
    ),
)
