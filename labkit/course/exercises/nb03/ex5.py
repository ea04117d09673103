"""Exercise 03-5: count messages and bytes on the busiest link of four ways to all-reduce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, near, simulated

METHODS = ("parameter_server", "naive_ring", "ring_all_reduce", "recursive_doubling")
#: Numbers of ranks and sizes: some that n does not divide; recursive doubling wants powers of two.
SIZES = ((2, 1000), (4, 1000), (5, 48), (8, 48), (64, 6))
CASES = tuple(
    (method, n, size)
    for method in METHODS
    for n, size in SIZES
    if method != "recursive_doubling" or n & (n - 1) == 0
)
#: messages(n), and the part of a tensor that each has.
Formula = Callable[[int], tuple[float, float]]


def _log2(n: int) -> int:
    return n.bit_length() - 1


RIGHT: dict[str, Formula] = {
    "parameter_server": lambda n: (2 * (n - 1), 1),
    "naive_ring": lambda n: (n - 1, 1),
    "ring_all_reduce": lambda n: (2 * (n - 1), 1 / n),
    "recursive_doubling": lambda n: (_log2(n), 1),
}


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(*case) for case in CASES]


def _pair(formula: Formula, n: int, size: int) -> tuple[float, float]:
    messages, part = formula(n)
    return messages, messages * part * size


def expected() -> list[Any]:
    return [_pair(RIGHT[method], n, size) for method, n, size in CASES]


def _at(method: str, wrong: Formula) -> Predicate:
    """Return the predicate of a wrong formula for one of the methods, whatever the others are."""
    mine = [(i, n, size) for i, (its, n, size) in enumerate(CASES) if its == method]
    return Predicate(
        lambda yours, expected, _: all(near(yours[i], _pair(wrong, n, size)) for i, n, size in mine)
    )


EXERCISE = Exercise(
    id="03-5",
    title="What it costs",
    answer="cost",
    trial=trial,
    expected=expected,
    entries=tuple(f'cost("{method}", {n}, {size})' for method, n, size in CASES),
    where="notebook",
    mistakes=(
        Mistake(
            "cost returns nothing for one of the methods.",
            when=lambda yours, expected, n: None in yours,
            raises=r"cannot access local variable '(?:messages|part)'",
        ),
        Mistake(
            "Return a pair: the number of messages, and their bytes together.",
            when=lambda yours, expected, n: any(isinstance(y, int | float) for y in yours),
        ),
        Mistake(
            "You return the bytes of one message: return those of all messages together.",
            when=simulated(
                lambda n: [(messages, size / messages) for messages, size in expected()]
            ),
        ),
        Mistake(
            "You count one direction of the server only. It receives n - 1 tensors first, and "
            "then sends n - 1.",
            when=_at("parameter_server", lambda n: (n - 1, 1)),
        ),
        Mistake(
            "The server sends nothing to itself: it talks to n - 1 workers, not to n.",
            when=_at("parameter_server", lambda n: (2 * n, 1)),
        ),
        Mistake(
            "The naive ring takes n - 1 steps: after those every rank has everything.",
            when=_at("naive_ring", lambda n: (n, 1)),
        ),
        Mistake(
            "The naive ring sends while it receives: that counts once, not twice.",
            when=_at("naive_ring", lambda n: (2 * (n - 1), 1)),
        ),
        Mistake(
            "You count the messages of all ranks. One rank's link carries n - 1 of them.",
            when=_at("naive_ring", lambda n: (n * (n - 1), 1)),
        ),
        Mistake(
            "You count only half of the chunked ring: reduce-scatter and all-gather each send n - "
            "1 chunks.",
            when=_at("ring_all_reduce", lambda n: (n - 1, 1 / n)),
        ),
        Mistake(
            "The chunked ring sends 2(n - 1) messages, but each is a chunk, an n-th of the tensor.",
            when=_at("ring_all_reduce", lambda n: (2 * (n - 1), 1)),
        ),
        Mistake(
            "Do not round, even to whole bytes: divide with /, not with //.",
            when=lambda yours, expected, n: (
                near(yours[CASES.index(("ring_all_reduce", 5, 48))], (8, 8 * (48 // 5)))
                or near(yours[CASES.index(("ring_all_reduce", 64, 6))], (126, 126 * 6 // 64))
            ),
        ),
        Mistake(
            "Recursive doubling sends while it receives, and the distance doubles in every step: "
            "it takes log2(n) steps, two for four ranks, three for eight.",
            when=_at("recursive_doubling", lambda n: (2 * _log2(n), 1))
            | _at("recursive_doubling", lambda n: (n - 1, 1))
            | _at("recursive_doubling", lambda n: (n // 2, 1))
            | _at("recursive_doubling", lambda n: (n, 1))
            | _at("recursive_doubling", lambda n: (n.bit_length(), 1)),
        ),
        Mistake(
            "In recursive doubling every message is the whole tensor; no step halves it.",
            when=_at("recursive_doubling", lambda n: (_log2(n), 1 / n)),
        ),
    ),
    hints=(
        "For each method ask: how many messages go through that rank's link one after the other, "
        "and how large is each?",
        "Server: n - 1 whole tensors in, then n - 1 out. Both rings: as many messages as steps. "
        "Recursive doubling: how often does 1 double until it is n?",
        "The bytes are the number of messages times the size of one, which is the whole tensor in "
        "three methods and an n-th of it in one. A chunked ring takes twice as many steps as a "
        "naive one, and recursive doubling takes log2(n) steps.",
    ),
)
