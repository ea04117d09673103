"""Say how a result is wrong that no mistake of the exercise describes, as far as values tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..rank_names import label
from ..wire.kinds import kind_of
from .compare import number, same


def clue(yours: Sequence[Any], expected: Sequence[Any], on_ranks: bool) -> str:
    """Return what all wrong results have in common, in one sentence; "" if nothing is seen.

    Parameters
    ----------
    yours, expected
        What each rank gave and should give; of an answer in the notebook, one of each.
    on_ranks
        Whether it ran on ranks.
    """
    pairs = [(y, e) for y, e in zip(yours, expected, strict=True) if not same(y, e)]
    if on_ranks and (text := _between_ranks(yours, expected)):
        return text
    found = {_of_pair(y, e) for y, e in pairs}
    return found.pop() if len(found) == 1 else ""


def _between_ranks(yours: Sequence[Any], expected: Sequence[Any]) -> str:
    n = len(yours)
    right = [r for r in range(n) if same(yours[r], expected[r])]
    if len(right) == 1 and n > 2 and all(same(e, expected[0]) for e in expected):
        return f"Only {label(right)} has it; every rank has to end with it."
    if right or n < 3 or any(same(expected[r], expected[r - 1]) for r in range(n)):
        return ""
    for k in (1, -1):
        if all(same(yours[r], expected[(r + k) % n]) for r in range(n)):
            side = "after" if k > 0 else "before"
            return f"Each rank has what the rank {side} it should have."
    return ""


def _of_pair(yours: Any, expected: Any) -> str:
    if yours is None:
        return ""
    return next((text for look in _LOOKS if (text := look(yours, expected))), "")


def _type(yours: Any, expected: Any) -> str:
    mine, its = kind_of(yours), kind_of(expected)
    if mine == its:
        return ""
    a, b = _plain(yours), _plain(expected)
    if not (same(_flat(a), _flat(b)) or _spelled(a, b) or _truth(a, b)):
        return ""
    one = "value is" if len(_flat(b)) == 1 else "values are"
    return f"The {one} right, but not the type: it is {mine}; {its} is expected."


def _plain(value: Any) -> Any:
    """Return tensors and arrays as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _flat(value: Any) -> list[Any]:
    return [x for v in value for x in _flat(v)] if isinstance(value, list) else [value]


def _spelled(a: Any, b: Any) -> bool:
    """Tell whether one is the text of the other, or its bytes."""
    texts = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in (a, b)]
    return any(isinstance(v, str) for v in texts) and str(texts[0]) == str(texts[1])


def _truth(a: Any, b: Any) -> bool:
    """Tell whether one has 0 and 1 where the other has False and True."""
    x, y = _flat(a), _flat(b)
    return (
        len(x) == len(y)
        and all(isinstance(v, bool | int | float) for v in (*x, *y))
        and all(float(v) == float(w) for v, w in zip(x, y, strict=True))
    )


def _length(yours: Any, expected: Any) -> str:
    if not (isinstance(yours, list | tuple) and isinstance(expected, list | tuple)):
        shapes = [tuple(v.shape) if hasattr(v, "shape") else None for v in (yours, expected)]
        if None in shapes or shapes[0] == shapes[1]:
            return ""
        return f"The shape is {shapes[0]}; {shapes[1]} is expected."
    if len(yours) == len(expected):
        return ""
    have = "item" if len(yours) == 1 else "items"
    verb = "is" if len(expected) == 1 else "are"
    return f"It has {len(yours)} {have}; {len(expected)} {verb} expected."


def _order(yours: Any, expected: Any) -> str:
    a, b = _plain(yours), _plain(expected)
    if not (isinstance(a, list) and isinstance(b, list) and len(a) == len(b) > 1):
        return ""
    rest = list(b)
    if any(isinstance(item, bool) for item in b):
        return ""
    for item in a:
        place = next((i for i, other in enumerate(rest) if same(item, other)), None)
        if place is None:
            return ""
        rest.pop(place)
    if len(b) == 2:
        return "The two values have changed places."
    return "The values are right, but their order is not."


def _numbers(yours: Any, expected: Any) -> list[tuple[float, float]] | None:
    a, b = (_flat(_plain(number(v))) for v in (yours, expected))
    if kind_of(yours) != kind_of(expected) and len(a) != 1:
        return None
    if len(a) != len(b) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
        for v in (*a, *b)
    ):
        return None
    return list(zip(a, b, strict=True))


def _factor(yours: Any, expected: Any) -> str:
    """Name a whole factor by which all numbers are too large, or too small."""
    pairs = _numbers(yours, expected)
    if not pairs or any((a == 0) != (b == 0) for a, b in pairs):
        return ""
    factors = [a / b for a, b in pairs if b]
    if not factors or not all(math.isclose(f, factors[0], rel_tol=1e-4) for f in factors):
        return ""
    f, what = factors[0], "It is" if len(pairs) == 1 else "Each number is"
    if math.isclose(f, -1, rel_tol=1e-4):
        return f"{what} right but for the sign."
    for k, text in (
        (f, "{} times as large as it should be."),
        (1 / f, "1/{} of what it should be."),
    ):
        if 1.5 < k < 1e7 and math.isclose(k, round(k), rel_tol=1e-4):
            return f"{what} {text.format(f'{round(k):,}')}"
    return ""


def _offset(yours: Any, expected: Any) -> str:
    """Name a number that all are too large by, or too small."""
    pairs = _numbers(yours, expected)
    if not pairs or len(pairs) < 2:
        return ""
    offsets = {a - b for a, b in pairs}
    if len(offsets) != 1 or not all(isinstance(v, int) for pair in pairs for v in pair):
        return ""
    by = offsets.pop()
    return f"Each number is {abs(by)} too {'large' if by > 0 else 'small'}."


def _opposite(yours: Any, expected: Any) -> str:
    a, b = _flat(_plain(yours)), _flat(_plain(expected))
    if len(a) != len(b) or len(a) < 2 or not all(isinstance(v, bool) for v in (*a, *b)):
        return ""
    opposite = all(v is not w for v, w in zip(a, b, strict=True))
    return "Each True should be False, and each False True." if opposite else ""


_LOOKS: tuple[Callable[[Any, Any], str], ...] = (
    _type,
    _length,
    _order,
    _opposite,
    _factor,
    _offset,
)
