"""Exercise 03-5: count the bytes on the busiest link of a parameter server and of two rings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...compare import number
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

METHODS = ("parameter_server", "naive_ring", "ring_all_reduce")
RANKS = (2, 4, 10)
SIZE = 1000


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Return three numbers of ranks for each of three methods, in one list."""
    return [number(answer(method, n, SIZE)) for method in METHODS for n in RANKS]


def _links(server: Callable[[int], float], naive: Any, ring: Any) -> list[float]:
    return [float(SIZE * f(n)) for f in (server, naive, ring) for n in RANKS]


def _server(n: int) -> float:
    return 2 * (n - 1)


def _naive_ring(n: int) -> float:
    return n - 1


def _ring(n: int) -> float:
    return 2 * (n - 1) / n


def expected() -> list[float]:
    return _links(_server, _naive_ring, _ring)


def _at(method: int, factor: Callable[[int], float]) -> When:
    """Return the predicate of a wrong factor for one of the methods."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        if not isinstance(yours, list):
            return False
        part = yours[method * len(RANKS) : (method + 1) * len(RANKS)]
        wrong = [SIZE * factor(k) for k in RANKS]
        return len(part) == len(wrong) and all(
            abs(y - w) < 1e-6 * SIZE for y, w in zip(part, wrong, strict=True)
        )

    return when


EXERCISE = Exercise(
    id="03-5",
    title="Three formulas",
    answer="link_bytes",
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "It returns nothing for one of the methods.",
            when=lambda yours, expected, n: None in yours,
            shown_by={"forgets a method": edit("return 2 * (n - 1) / n * size", "")},
        ),
        Mistake(
            "You count one direction of the server only. It receives n - 1 tensors first, and "
            "then sends n - 1.",
            when=_at(0, lambda n: n - 1),
            shown_by={
                "one direction of the server": body("""
                    if method == "ring_all_reduce":
                        return 2 * (n - 1) / n * size
                    return (n - 1) * size
                """),
            },
        ),
        Mistake(
            "The server sends nothing to itself: it talks to n - 1 workers, not to n.",
            when=_at(0, lambda n: 2 * n),
            shown_by={"the server talks to itself": edit("* (n - 1) *", "* n *")},
        ),
        Mistake(
            "The naive ring takes n - 1 steps: after those everybody has everything.",
            when=_at(1, lambda n: n),
            shown_by={
                "n steps": body("""
                    factors = {"parameter_server": 2 * (n - 1), "naive_ring": n}
                    return factors.get(method, 2 * (n - 1) / n) * size
                """),
            },
        ),
        Mistake(
            "The naive ring sends while it receives: count the larger of the two, not both.",
            when=_at(1, lambda n: 2 * (n - 1)),
            shown_by={
                "both directions of the ring": body("""
                    factors = {"parameter_server": 2 * (n - 1), "naive_ring": 2 * (n - 1)}
                    return factors.get(method, 2 * (n - 1) / n) * size
                """),
            },
        ),
        Mistake(
            "You count half of the chunked ring: reduce-scatter and all-gather each send n - 1 "
            "chunks.",
            when=_at(2, lambda n: (n - 1) / n),
            shown_by={"half of the ring": edit("2 * (n - 1) /", "(n - 1) /")},
        ),
        Mistake(
            "The chunked ring sends 2(n - 1) messages, but each is a chunk: a tensor's n-th part.",
            when=_at(2, lambda n: 2 * (n - 1)),
            shown_by={
                "whole tensors in the ring": edit(
                    """
                    if method == "parameter_server":
                        return 2 * (n - 1) * size
                    """,
                    "",
                    "/ n * size",
                    "* size",
                ),
            },
        ),
    ),
    another=body("""
        steps = {
            "parameter_server": 2 * (n - 1),
            "naive_ring": n - 1,
            "ring_all_reduce": 2 * (n - 1),
        }
        message = size / n if method == "ring_all_reduce" else size
        return steps[method] * message
    """),
    hints=(
        "For each method ask: how many messages go through that rank's link one after the other, "
        "and how large is each?",
        "Server: n - 1 whole tensors in, then n - 1 out. Naive ring: n - 1 steps with a whole "
        "tensor. Chunked ring: 2(n - 1) steps with an n-th of it.",
        "2 * (n - 1) * size, (n - 1) * size, 2 * (n - 1) / n * size",
    ),
)
