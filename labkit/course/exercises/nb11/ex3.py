"""Exercise 11-3: order the forward and backward passes of a stage: 1F1B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When, would_give

#: Stages and micro-batches; every stage of each is asked for.
PIPES = ((4, 6), (4, 2), (2, 3), (1, 2))


def trial(answer: Callable[..., Any], here: Here) -> list[list[str]]:
    """Ask every stage of each pipeline for its order."""
    return [list(answer(stage, p, m)) for p, m in PIPES for stage in range(p)]


def _order(ahead: int, m: int) -> list[str]:
    """Return the order of a stage that runs ``ahead`` forwards before it takes turns."""
    ahead = min(m, ahead)
    order = [f"F{k}" for k in range(ahead)]
    for k in range(ahead, m):
        order += [f"F{k}", f"B{k - ahead}"]
    return order + [f"B{k}" for k in range(m - ahead, m)]


def _orders(ahead: Callable[[int, int, int], int]) -> list[list[str]]:
    return [_order(ahead(s, p, m), m) for p, m in PIPES for s in range(p)]


def expected() -> list[list[str]]:
    """Return 1F1B."""
    return _orders(lambda s, p, m: p - 1 - s)


def _starts(ahead: Callable[[int, int, int], int]) -> When:
    return would_give(lambda n: _orders(ahead))


def _too_many(yours: Any, expected: Any, n: int) -> bool:
    """Tell whether there is a micro-batch that does not exist."""
    numbers = [m for p, m in PIPES for _ in range(p)]
    return any(
        int(part[1:]) not in range(m) for m, order in zip(numbers, yours, strict=True)
        for part in order
    )  # fmt: skip


def _too_short(yours: Any, expected: Any, n: int) -> bool:
    return all(len(y) <= len(e) for y, e in zip(yours, expected, strict=True)) and any(
        set(y) < set(e) for y, e in zip(yours, expected, strict=True)
    )


EXERCISE = Exercise(
    id="11-3",
    title="1F1B",
    answer="one_f_one_b",
    trial=trial,
    expected=expected,
    entries=tuple(f"one_f_one_b({stage}, {p}, {m})" for p, m in PIPES for stage in range(p)),
    where="notebook",
    mistakes=(
        Mistake(
            "It names micro-batches that do not exist: their numbers are 0 to m - 1. If there "
            "are few, begin with only min(m, p - 1 - stage) forwards.",
            when=_too_many,
            shown_by={
                "more forwards than there are": edit(
                    "ahead = min(m, p - 1 - stage)", "ahead = p - 1 - stage"
                )
            },
        ),
        Mistake(
            "Entries are missing: every micro-batch has one forward and one backward. After the "
            "pairs, the backwards that are left have to follow.",
            when=_too_short,
            shown_by={
                "the last ones do not come back": edit(
                    'return order + [f"B{k}" for k in range(m - ahead, m)]', "return order"
                )
            },
        ),
        Mistake(
            "This is gpipe's order: all forwards, then all backwards. It keeps all m "
            "micro-batches.",
            when=_starts(lambda s, p, m: m),
            shown_by={
                "gpipe": body('return [f"F{k}" for k in range(m)] + [f"B{k}" for k in range(m)]')
            },
        ),
        Mistake(
            "You count from the wrong end. The first stage has the most stages behind it, so it "
            "begins with the most forwards: p - 1 - stage.",
            when=_starts(lambda s, p, m: s),
            shown_by={"from the wrong end": edit("p - 1 - stage", "stage")},
        ),
        Mistake(
            "There is one forward too many at the beginning: the first pair begins with a "
            "forward too, so only p - 1 - stage come before it.",
            when=_starts(lambda s, p, m: p - s),
            shown_by={"one ahead too many": edit("1 - stage", "stage")},
        ),
        Mistake(
            "Every stage alternates from the beginning, so each waits for its first micro-batch "
            "to come back before it takes the next. Only the last stage may do that.",
            when=_starts(lambda s, p, m: 0),
            shown_by={
                "takes turns from the beginning": body(
                    'return [part for k in range(m) for part in (f"F{k}", f"B{k}")]'
                )
            },
        ),
    ),
    another=body("""
        order, forwards, backwards = [], 0, 0
        while backwards < m:
            if forwards < m and forwards - backwards < p - stage:
                order.append(f"F{forwards}")
                forwards += 1
            else:
                order.append(f"B{backwards}")
                backwards += 1
        return order
    """),
    hints=(
        "Three parts: a few forwards, then pairs of one forward and one backward, then the "
        "backwards that are left.",
        "ahead = min(m, p - 1 - stage) forwards come first. In the pairs, forward k goes with "
        "backward k - ahead.",
        'After the first ahead forwards: for each k from ahead to m - 1 the pair "F{k}", "B{k '
        '- ahead}". Which backwards have not been named then?',
    ),
)
