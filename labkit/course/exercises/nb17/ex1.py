"""Exercise 17-1: fill gradient buckets in DDP's order and up to its cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

SIZES = (400, 40, 800, 80, 600, 60, 200)
CAPS = (1, 700, 860, 10_000)


def trial(answer: Callable[..., Any], here: Here) -> list[list[int]]:
    return [[int(size) for size in answer(list(SIZES), cap)] for cap in CAPS]


def fill(sizes: Sequence[int], cap: int) -> list[int]:
    """Fill buckets as DDP does after its first step."""
    buckets: list[int] = []
    for size in reversed(sizes):
        if not buckets or buckets[-1] >= cap:
            buckets.append(0)
        buckets[-1] += size
    return buckets


def expected() -> list[list[int]]:
    return [fill(SIZES, cap) for cap in CAPS]


def _filled(play: Callable[[Sequence[int], int], list[int]]) -> When:
    def when(yours: Any, expected: Any, n: int) -> bool:
        return bool(yours == [play(SIZES, cap) for cap in CAPS])

    return when


def _never_over(sizes: Sequence[int], cap: int) -> list[int]:
    buckets: list[int] = []
    for size in reversed(sizes):
        if not buckets or buckets[-1] + size > cap:
            buckets.append(0)
        buckets[-1] += size
    return buckets


def _only_above(sizes: Sequence[int], cap: int) -> list[int]:
    return fill(sizes, cap + 1)  # whole numbers


EXERCISE = Exercise(
    id="17-1",
    title="Fill the buckets",
    answer="fill",
    trial=trial,
    expected=expected,
    entries=tuple(f"fill(sizes, cap={cap}), sizes={list(SIZES)}" for cap in CAPS),
    where="notebook",
    mistakes=(
        Mistake(
            "You begin with the first parameter. The backward pass has the gradients of the last "
            "layer first: go through sizes from the end.",
            when=_filled(lambda sizes, cap: fill(sizes[::-1], cap)),
            shown_by={"from the first": edit("reversed(sizes)", "sizes")},
        ),
        Mistake(
            "Your buckets stay below the cap. DDP closes a bucket when it holds cap bytes or "
            "more: the gradient that fills it still goes in.",
            when=_filled(_never_over),
            shown_by={"never above the cap": edit(">= cap", "+ size > cap")},
        ),
        Mistake(
            "A bucket that holds exactly cap bytes stays open. It is full when it holds cap bytes "
            "or more: the comparison is >=.",
            when=_filled(_only_above),
            shown_by={"closes only above the cap": edit(">= cap", "> cap")},
        ),
        Mistake(
            "There is an empty bucket at the end: open a new one only when a gradient needs it.",
            when=lambda yours, expected, n: any(0 in buckets for buckets in yours),
            shown_by={
                "an empty one at the end": body("""
                    buckets = [0]
                    for size in reversed(sizes):
                        buckets[-1] += size
                        if buckets[-1] >= cap:
                            buckets.append(0)
                    return buckets
                """),
            },
        ),
        Mistake(
            "Some gradients are in no bucket: the last bucket counts even if it is not full.",
            when=lambda yours, expected, n: any(sum(b) < sum(SIZES) for b in yours),
            shown_by={
                "the last is not closed": edit(
                    "buckets = []",
                    "buckets, current = [], 0",
                    """
                    if not buckets or buckets[-1] >= cap:
                        buckets.append(0)
                    buckets[-1] += size
                    """,
                    """
                    current += size
                    if current >= cap:
                        buckets.append(current)
                        current = 0
                    """,
                ),
            },
        ),
    ),
    another=body("""
        buckets, current = [], 0
        for size in sizes[::-1]:
            current += size
            if current >= cap:
                buckets.append(current)
                current = 0
        return buckets + [current] if current else buckets
    """),
    hints=(
        "Keep a list of buckets. A gradient goes into the last one, unless that is full.",
        "Go through reversed(sizes). When is a new bucket needed? If there is none yet, or if "
        "the last one holds cap bytes or more.",
        "buckets[-1] holds the bytes of the last bucket. If a new one is needed, append 0 first; "
        "in any case add size to buckets[-1].",
    ),
)
