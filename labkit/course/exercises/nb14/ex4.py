"""Exercise 14-4: predict an all-reduce on two levels: within hosts, and between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When, would_give
from .ring_cost import ring

#: α in seconds and β in seconds a byte: within a host, and between hosts.
FAST, SLOW = (5e-6, 1e-11), (2e-5, 8e-10)

#: (hosts, ranks on each, bytes of the tensor).
LEVELS = ((2, 2, 10**6), (16, 8, 4096), (128, 8, 10**9))

#: (hosts, per_host, size) -> seconds.
Levels = Callable[[int, int, int], float]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(hosts, each, size, FAST, SLOW) for hosts, each, size in LEVELS]


def two_levels(hosts: int, each: int, size: float) -> float:
    return ring(each, size, *FAST) + ring(hosts, size, *SLOW)


def expected() -> list[float]:
    return [two_levels(*case) for case in LEVELS]


def _levels(wrong: Levels) -> When:
    return would_give(lambda _: [wrong(*case) for case in LEVELS])


EXERCISE = Exercise(
    id="14-4",
    title="Two levels",
    answer="hierarchical_time",
    setup="""
        def ring(n, size, alpha, beta):
            return 2 * (n - 1) * (alpha + size / n * beta)
    """,
    trial=trial,
    expected=expected,
    entries=tuple(
        f"hierarchical_time({hosts}, {each}, {size}, {FAST}, {SLOW})"
        for hosts, each, size in LEVELS
    ),
    where="notebook",
    mistakes=(
        Mistake(
            "This is one flat ring over all ranks. With two levels, the ring between hosts has "
            "only as many members as there are hosts.",
            when=_levels(lambda hosts, each, size: ring(hosts * each, size, *SLOW)),
            shown_by={"a flat ring": body("return ring(hosts * per_host, size, *slow)")},
        ),
        Mistake(
            "You leave out what happens inside the hosts, before and after.",
            when=_levels(lambda hosts, each, size: ring(hosts, size, *SLOW)),
            shown_by={"between hosts only": body("return ring(hosts, size, *slow)")},
        ),
        Mistake(
            "You leave out what happens between the hosts.",
            when=_levels(lambda hosts, each, size: ring(each, size, *FAST)),
            shown_by={"inside only": body("return ring(per_host, size, *fast)")},
        ),
        Mistake(
            "Fast and slow have changed places: the slow links are those between hosts.",
            when=_levels(
                lambda hosts, each, size: ring(each, size, *SLOW) + ring(hosts, size, *FAST)
            ),
            shown_by={
                "fast and slow": body(
                    "return ring(per_host, size, *slow) + ring(hosts, size, *fast)"
                )
            },
        ),
        Mistake(
            "Each rank sends its part of size / per_host bytes round the ring between hosts, but "
            "all per_host ranks of a host share one cable: together they send the whole size "
            "again.",
            when=_levels(
                lambda hosts, each, size: ring(each, size, *FAST) + ring(hosts, size / each, *SLOW)
            ),
            shown_by={
                "a cable each": body(
                    "return ring(per_host, size, *fast) + ring(hosts, size / per_host, *slow)"
                )
            },
        ),
        Mistake(
            "Inside a host there are two phases, reduce-scatter before and all-gather after; you "
            "count one.",
            when=_levels(
                lambda hosts, each, size: ring(each, size, *FAST) / 2 + ring(hosts, size, *SLOW)
            ),
            shown_by={
                "one round": body(
                    "return ring(per_host, size, *fast) / 2 + ring(hosts, size, *slow)"
                )
            },
        ),
        Mistake(
            "You count a whole all-reduce inside the host before, and another after. It is a "
            "reduce-scatter before and an all-gather after: each costs half of an all-reduce.",
            when=_levels(
                lambda hosts, each, size: 2 * ring(each, size, *FAST) + ring(hosts, size, *SLOW)
            ),
            shown_by={
                "two all-reduces": body(
                    "return 2 * ring(per_host, size, *fast) + ring(hosts, size, *slow)"
                )
            },
        ),
    ),
    another=edit(
        "for k,", "for n,", "(k - 1) * alpha + 2 * (k - 1) / k", "(n - 1) * alpha + 2 * (n - 1) / n"
    ),
    hints=(
        "Three phases: inside a host, between hosts, inside again. The first and the last are "
        "the two halves of one ring inside the host.",
        "Between hosts, the ranks of a host send size / per_host each, through one cable: for the "
        "cable it is a ring of hosts with the whole size.",
        "Add two rings, both with the whole size: one of per_host ranks with the fast pair, one "
        "of as many as there are hosts with the slow pair. The time of a ring is that of "
        "exercise 14-2.",
    ),
)
