"""Say in a sentence what is wrong with one value, where it and the right one show that."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..wire.trial import kind_of
from .compare import are_lists, number, same

#: Numbers side by side: yours and the right one.
Pairs = Sequence[tuple[Any, Any]]
#: Numbers of this size and more are not computed with: a square would overflow.
LARGEST = 1e150
#: Of how many parts a factor may be that is not whole: n / (n - 1), say.
MOST_PARTS = 12
REORDERED = "The values are right, but their order is not."
LARGER, SMALLER = "{} times as large as it should be", "1/{} of what it should be"
SWAPPED = "The two values have changed places."


def of_pair(yours: Any, expected: Any) -> str:
    """Return what is seen of one value beside the right one; "" if nothing is."""
    if yours is None:
        return ""
    found = (text for look in _OF_VALUES if (text := look(yours, expected)))
    return next(found, "") or of_numbers(numbers(yours, expected))


def of_numbers(pairs: Pairs) -> str:
    """Return what all numbers have in common, beside the right ones; "" if nothing is seen."""
    return next((text for look in _OF_NUMBERS if pairs and (text := look(pairs))), "")


def _type(yours: Any, expected: Any) -> str:
    mine, its = kind_of(yours), kind_of(expected)
    if mine == its:
        return ""
    a, b = plain(yours), plain(expected)
    if not (same(flat(a), flat(b)) or _spelled(a, b) or _truth(a, b)):
        return ""
    one = "value is" if len(flat(b)) == 1 else "values are"
    return f"The {one} right, but not the type: it is {mine}; {its} is expected."


def plain(value: Any) -> Any:
    """Return tensors and arrays as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def flat(value: Any) -> list[Any]:
    """Return the innermost items of a list of lists."""
    return [x for v in value for x in flat(v)] if isinstance(value, list) else [value]


def _spelled(a: Any, b: Any) -> bool:
    """Return whether one is the text of the other, or its bytes."""
    texts = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in (a, b)]
    return any(isinstance(v, str) for v in texts) and str(texts[0]) == str(texts[1])


def _truth(a: Any, b: Any) -> bool:
    """Return whether one has 0 and 1 where the other has False and True."""
    x, y = flat(a), flat(b)
    return (
        len(x) == len(y)
        and all(isinstance(v, bool | int | float) for v in (*x, *y))
        and all(float(v) == float(w) for v, w in zip(x, y, strict=True))
    )


def _missing(yours: Any, expected: Any) -> str:
    if not (isinstance(yours, Mapping) and isinstance(expected, Mapping)):
        return ""
    missing = [repr(key) for key in expected if key not in yours]
    return f"It lacks {' and '.join(missing)}." if missing else ""


def _length(yours: Any, expected: Any) -> str:
    if not are_lists(yours, expected):
        shapes = [tuple(v.shape) if hasattr(v, "shape") else None for v in (yours, expected)]
        if None in shapes or shapes[0] == shapes[1]:
            return ""
        return f"The shape is {shapes[0]}; {shapes[1]} is expected."
    if len(yours) == len(expected):
        return ""
    have = "item" if len(yours) == 1 else "items"
    verb = "is" if len(expected) == 1 else "are"
    said = f"It has {len(yours)} {have}; {len(expected)} {verb} expected"
    few, many = sorted((yours, expected), key=len)
    rest = len(many) - len(few)
    for place, part in (("first", many[rest:]), ("last", many[:-rest])):
        if few and same(part, few):
            what = "missing" if few is yours else "too many"
            what = f"{rest} are {what}" if rest > 1 else f"one is {what}"
            return f"{said}: the {place} {what}."
    return f"{said}."


def _order(yours: Any, expected: Any) -> str:
    a, b = plain(yours), plain(expected)
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
    return SWAPPED if len(b) == 2 else REORDERED


def numbers(yours: Any, expected: Any) -> Pairs:
    """Return the numbers of both side by side; none if one has others than numbers, or more."""
    a, b = (flat(plain(number(v))) for v in (yours, expected))
    if len(a) != len(b) or (kind_of(yours) != kind_of(expected) and len(a) != 1):
        return []
    right = (
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < LARGEST
        for v in (*a, *b)
    )
    return list(zip(a, b, strict=True)) if all(right) else []


def _what(pairs: Pairs) -> str:
    return "It is" if len(pairs) == 1 else "Each number is"


def _factor(pairs: Pairs) -> str:
    """Name a whole factor by which all numbers are too large, or too small."""
    if any((a == 0) != (b == 0) for a, b in pairs):
        return ""
    factors = [a / b for a, b in pairs if b]
    if not factors or not all(math.isclose(f, factors[0], rel_tol=1e-4) for f in factors):
        return ""
    f, what = factors[0], _what(pairs)
    if math.isclose(f, -1, rel_tol=1e-4):
        return f"{what} right but for the sign."
    for k, text in ((f, LARGER), (1 / f, SMALLER)):
        if 1.5 < k < 1e7 and math.isclose(k, round(k), rel_tol=1e-4):
            return f"{what} {text.format(f'{round(k):,}')}."
    share = Fraction(f).limit_denominator(MOST_PARTS)
    if len(factors) > 1 and share > 0 and math.isclose(f, share, rel_tol=1e-5):
        return f"{what} {share} of what it should be."
    return ""


def _about(pairs: Pairs) -> str:
    """Name a whole factor that is seen through rounding to whole numbers."""
    whole = all(isinstance(v, int) and v > 0 for pair in pairs for v in pair)
    if len(pairs) < 2 or not whole or max(min(pair) for pair in pairs) < 20:
        return ""
    for k in range(2, 17):
        if all(abs(a - k * b) <= k for a, b in pairs):
            return f"{_what(pairs)} {LARGER.format(k)}, but for rounding."
        if all(abs(b - k * a) <= k for a, b in pairs):
            return f"{_what(pairs)} {SMALLER.format(k)}, but for rounding."
    return ""


def _offset(pairs: Pairs) -> str:
    """Name a number that all are too large by, or too small; of a single one only 1."""
    if not all(isinstance(v, int) for pair in pairs for v in pair):
        return ""
    offsets = {a - b for a, b in pairs}
    by = offsets.pop()
    if not by or offsets or (len(pairs) == 1 and abs(by) != 1):
        return ""
    return f"{_what(pairs)} {abs(by)} too {'large' if by > 0 else 'small'}."


def _nan(yours: Any, expected: Any) -> str:
    mine, its = (
        [v for v in flat(plain(value)) if isinstance(v, float)] for value in (yours, expected)
    )
    if any(map(math.isnan, mine)) and not any(map(math.isnan, its)):
        return "There is nan in it, as from 0 / 0 or from the variance of a single number."
    return ""


def _case(yours: Any, expected: Any) -> str:
    texts = isinstance(yours, str) and isinstance(expected, str)
    if texts and yours.lower().strip() == expected.lower().strip():
        return f"It is {yours!r}; {expected!r} is expected."
    return ""


def _rounded(pairs: Pairs) -> str:
    """Name a rounding that was not asked for."""
    for rounding, text in ((math.floor, "down"), (math.ceil, "up")):
        if all(a == rounding(b) for a, b in pairs):
            return f"{_what(pairs)} rounded {text}; it should not be."
    return ""


def _function(pairs: Pairs) -> str:
    """Name a square, an inverse and the like; a single number may be a root or share by chance."""
    if any(b == 0 for _, b in pairs):
        return ""
    several = len({b for _, b in pairs}) > 1 and all(b > 0 for _, b in pairs)
    shares = several and all(b < 1 for _, b in pairs)
    for function, text, may_be in (
        (lambda b: b * b, "the square of", True),
        (lambda b: 1 / b, "1 divided by", True),
        (math.sqrt, "the square root of", several),
        (math.log2, "the base-2 logarithm of", several),
        (lambda b: 1 - b, "1 minus", shares),
    ):
        if may_be and all(math.isclose(a, function(b), rel_tol=1e-4) for a, b in pairs):
            return f"{_what(pairs)} {text} what it should be."
    return ""


def _transposed(yours: Any, expected: Any) -> str:
    if getattr(yours, "ndim", 0) == getattr(expected, "ndim", 0) == 2 and same(yours.T, expected):
        return "Rows and columns are exchanged."
    return ""


def _opposite(yours: Any, expected: Any) -> str:
    a, b = flat(plain(yours)), flat(plain(expected))
    if len(a) != len(b) or len(a) < 2 or not all(isinstance(v, bool) for v in (*a, *b)):
        return ""
    opposite = all(v is not w for v, w in zip(a, b, strict=True))
    return "Each True should be False, and each False True." if opposite else ""


_OF_NUMBERS: tuple[Callable[[Pairs], str], ...] = (_factor, _offset, _rounded, _about, _function)
_OF_VALUES: tuple[Callable[[Any, Any], str], ...] = (
    _nan,
    _case,
    _transposed,
    _type,
    _missing,
    _length,
    _order,
    _opposite,
)
