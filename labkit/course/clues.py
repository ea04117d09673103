"""Say how a result is wrong that no mistake of the exercise describes, as far as values tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..rank_names import label
from ..wire.kinds import kind_of
from .compare import number, same
from .difference import leaves

#: Numbers of this size and more are not computed with: a square would overflow.
LARGEST = 1e150
#: Of how many parts a factor may be that is not whole: n / (n - 1), say.
MOST_PARTS = 12
#: Results with more parts have no clue of their own for one of them.
ORDINALS = ("first", "second", "third", "fourth")
REORDERED = "The values are right, but their order is not."
LARGER, SMALLER = "{} times as large as it should be", "1/{} of what it should be"
SWAPPED = "The two values have changed places."


def clue(yours: Sequence[Any], expected: Sequence[Any], on_ranks: bool, slip: str = "") -> str:
    """Return what all wrong results have in common, in one sentence; "" if nothing is seen.

    Parameters
    ----------
    yours, expected
        What each rank gave and should give; of an answer in the notebook, one of each.
    on_ranks
        Whether it ran on ranks.
    slip
        What is said of its formula, if that has one.
    """
    pairs = [(y, e) for y, e in zip(yours, expected, strict=True) if not same(y, e)]
    if on_ranks and (text := _between_ranks(yours, expected)):
        return text
    results = [_items(*pair) for pair in pairs if not hasattr(pair[1], "shape")]
    cases = [case for result in results for case in result.values() if not same(*case)]
    return (
        _in_common(pairs)
        or _in_common(cases)
        or _constant(results)
        or slip
        or _of_parts(pairs)
        or _part(cases)
        or (_unequal(yours, expected) if on_ranks else "")
        or _of_first(cases)
    )


def _in_common(pairs: Sequence[tuple[Any, Any]]) -> str:
    """Return what all of these have in common."""
    found = {_of_pair(y, e) for y, e in pairs}
    if found == {SWAPPED, REORDERED}:
        return REORDERED
    return found.pop() if len(found) == 1 else ""


def _constant(results: Sequence[Mapping[Any, tuple[Any, Any]]]) -> str:
    """Say that all cases have the same result where they should not."""
    mine, its = ([case[k] for result in results for case in result.values()] for k in (0, 1))
    few = min(map(len, results), default=0) < 3 or all(same(e, its[0]) for e in its)
    if few or not all(isinstance(y, int | float) and same(y, mine[0]) for y in mine):
        return ""
    return f"It is {mine[0]!r} in every case."


def _of_first(cases: Sequence[tuple[Any, Any]]) -> str:
    """Say what is seen in the first case, if that has several numbers: of one it may be chance."""
    if len(cases) < 2 or len(_flat(_plain(cases[0][1]))) < 2:
        return ""
    text = _of_pair(*cases[0])
    return text and f"In the first that differs: {text[0].lower()}{text[1:]}"


def _items(yours: Any, expected: Any) -> dict[Any, tuple[Any, Any]]:
    """Return the parts of two values side by side, by place or key; none if they have others."""
    if isinstance(yours, Mapping) and isinstance(expected, Mapping):
        keys = expected.keys() if yours.keys() == expected.keys() else ()
        return {key: (yours[key], expected[key]) for key in keys}
    if not _are_lists(yours, expected):
        shapes = [getattr(value, "shape", ()) for value in (yours, expected)]
        if not shapes[0] or shapes[0] != shapes[1]:
            return {}
    elif len(yours) != len(expected):
        return {}
    return dict(enumerate(zip(yours, expected, strict=True)))


def _part(cases: Sequence[tuple[Any, Any]]) -> str:
    """Name the parts that are wrong wherever something is, if the others are always right."""
    found = [_items(*case) for case in cases]
    names = list(found[0]) if found else []
    if any(list(parts) != names for parts in found):
        return ""
    wrong = [k for k in names if not all(same(*parts[k]) for parts in found)]
    right = [k for k in names if k not in wrong]
    if not (wrong and right) or len(names) > len(ORDINALS):
        return ""
    if all(isinstance(name, str) for name in names):
        verb = "is" if len(wrong) == 1 else "are"
        return f"Only {' and '.join(map(repr, wrong))} {verb} wrong."
    if all(same(case, cases[0]) for case in cases):  # of a single case that is chance
        return ""
    if len(wrong) == 1:
        return f"Of its {len(names)} parts only the {ORDINALS[wrong[0]]} is wrong."
    return f"Of its {len(names)} parts only the {ORDINALS[right[0]]} is right." * (len(right) == 1)


def _of_parts(pairs: Sequence[tuple[Any, Any]]) -> str:
    """Return what the innermost values that differ have in common, on all ranks together."""
    parts = _innermost(pairs)
    several = any(len(leaves(*map(_plain, pair))) > 1 for pair in pairs)
    if several and len(parts) == 1 and all(isinstance(value, str | bool) for value in parts[0]):
        return f"Where it differs, it is {parts[0][0]!r} instead of {parts[0][1]!r}."
    if len(parts) < 2 or not _are_numbers(parts):
        return ""
    mine, its = (list(values) for values in zip(*parts, strict=True))
    text = next((text for look in _OF_NUMBERS if (text := look(mine, its))), "")
    return text.replace("Each number is", "Each number that differs is")


def _innermost(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the innermost values that differ, equal ones of several ranks once."""
    parts: list[tuple[Any, Any]] = []
    for pair in pairs:
        for _, a, b in leaves(*map(_plain, pair)):
            if not any(same((a, b), part) for part in parts):
                parts.append((a, b))
    return parts


def _are_numbers(parts: Sequence[tuple[Any, Any]]) -> bool:
    values = [value for part in parts for value in part]
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _unequal(yours: Sequence[Any], expected: Sequence[Any]) -> str:
    """Say that ranks end with different results where all should have the same; of a single one
    that is wrong the sentence has said so."""
    wrong = [y for y, e in zip(yours, expected, strict=True) if not same(y, e)]
    alike = all(same(e, expected[0]) for e in expected)
    if alike and len(wrong) > 1 and not all(same(y, yours[0]) for y in yours):
        return "The ranks' results differ from one another; all should have the same."
    return ""


def _between_ranks(yours: Sequence[Any], expected: Sequence[Any]) -> str:
    n = len(yours)
    right = [r for r in range(n) if same(yours[r], expected[r])]
    if len(right) == 1 and n > 2 and all(same(e, expected[0]) for e in expected):
        return f"Only {label(right)} has it; every rank has to end with it."
    if not right and all(same(e, expected[0]) for e in expected):
        return _apart(yours, expected[0])
    if n < 3 or any(same(expected[r], expected[r - 1]) for r in range(n)):
        return ""
    if len(right) == 1 and all(same(y, expected[right[0]]) for y in yours):
        return f"Every rank has what only {label(right)} should have."
    for k in (1, -1):
        if all(same(yours[r], expected[(r + k) % n]) for r in range(n)):
            side = "after" if k > 0 else "before"
            return f"Each rank has what the rank {side} it should have."
    if all(same(yours[r], expected[n - 1 - r]) for r in range(n)):
        return "The ranks have each other's results: the first rank that of the last, and so on."
    return ""


def _apart(yours: Sequence[Any], expected: Any) -> str:
    """Say that the ranks' results only need to be put together to be what all should have."""
    rows = [_numbers(y, expected) for y in yours]
    if len(yours) < 2 or not all(rows) or all(same(y, yours[0]) for y in yours):
        return ""
    columns = list(zip(*([a for a, _ in row] for row in rows if row), strict=True))
    wanted = [b for _, b in rows[0] or ()]
    for combine, text in (
        (sum, "add up to"),
        (lambda column: sum(column) / len(column), "have as their mean"),
        (max, "have as their largest"),
        (min, "have as their smallest"),
    ):
        if all(
            math.isclose(combine(column), number, rel_tol=1e-4)
            for column, number in zip(columns, wanted, strict=True)
        ):
            return f"The ranks' results {text} what each should have: they were not put together."
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


def _are_lists(*values: Any) -> bool:
    return all(isinstance(value, list | tuple) for value in values)


def _missing(yours: Any, expected: Any) -> str:
    if not (isinstance(yours, Mapping) and isinstance(expected, Mapping)):
        return ""
    missing = [repr(key) for key in expected if key not in yours]
    return f"It lacks {' and '.join(missing)}." if missing else ""


def _length(yours: Any, expected: Any) -> str:
    if not _are_lists(yours, expected):
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
    return SWAPPED if len(b) == 2 else REORDERED


def _numbers(yours: Any, expected: Any) -> list[tuple[float, float]] | None:
    a, b = (_flat(_plain(number(v))) for v in (yours, expected))
    if kind_of(yours) != kind_of(expected) and len(a) != 1:
        return None
    if len(a) != len(b) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < LARGEST
        for v in (*a, *b)
    ):
        return None
    return list(zip(a, b, strict=True))


def _what(pairs: Sequence[Any]) -> str:
    return "It is" if len(pairs) == 1 else "Each number is"


def _factor(yours: Any, expected: Any) -> str:
    """Name a whole factor by which all numbers are too large, or too small."""
    pairs = _numbers(yours, expected)
    if not pairs or any((a == 0) != (b == 0) for a, b in pairs):
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


def _about(yours: Any, expected: Any) -> str:
    """Name a whole factor that is seen through rounding to whole numbers."""
    pairs = _numbers(yours, expected) or []
    whole = all(isinstance(v, int) and v > 0 for pair in pairs for v in pair)
    if len(pairs) < 2 or not whole or max(min(pair) for pair in pairs) < 20:
        return ""
    for k in range(2, 17):
        if all(abs(a - k * b) <= k for a, b in pairs):
            return f"{_what(pairs)} {LARGER.format(k)}, but for rounding."
        if all(abs(b - k * a) <= k for a, b in pairs):
            return f"{_what(pairs)} {SMALLER.format(k)}, but for rounding."
    return ""


def _offset(yours: Any, expected: Any) -> str:
    """Name a number that all are too large by, or too small; of a single one only 1."""
    pairs = _numbers(yours, expected)
    if not pairs or not all(isinstance(v, int) for pair in pairs for v in pair):
        return ""
    offsets = {a - b for a, b in pairs}
    by = offsets.pop()
    if not by or offsets or (len(pairs) == 1 and abs(by) != 1):
        return ""
    return f"{_what(pairs)} {abs(by)} too {'large' if by > 0 else 'small'}."


def _nan(yours: Any, expected: Any) -> str:
    mine, its = (
        [v for v in _flat(_plain(value)) if isinstance(v, float)] for value in (yours, expected)
    )
    if any(map(math.isnan, mine)) and not any(map(math.isnan, its)):
        return "There is nan in it, as from 0 / 0 or from the variance of a single number."
    return ""


def _case(yours: Any, expected: Any) -> str:
    texts = isinstance(yours, str) and isinstance(expected, str)
    if texts and yours.lower().strip() == expected.lower().strip():
        return f"It is {yours!r}; {expected!r} is expected."
    return ""


def _rounded(yours: Any, expected: Any) -> str:
    """Name a rounding that was not asked for."""
    pairs = _numbers(yours, expected)
    for rounding, text in ((math.floor, "down"), (math.ceil, "up")):
        if pairs and all(a == rounding(b) for a, b in pairs):
            return f"{_what(pairs)} rounded {text}; it should not be."
    return ""


def _function(yours: Any, expected: Any) -> str:
    """Name a square, an inverse and the like; a single number may be a root or share by chance."""
    pairs = _numbers(yours, expected)
    if not pairs or any(b == 0 for _, b in pairs):
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
    a, b = _flat(_plain(yours)), _flat(_plain(expected))
    if len(a) != len(b) or len(a) < 2 or not all(isinstance(v, bool) for v in (*a, *b)):
        return ""
    opposite = all(v is not w for v, w in zip(a, b, strict=True))
    return "Each True should be False, and each False True." if opposite else ""


#: What all numbers have in common.
_OF_NUMBERS: tuple[Callable[[Any, Any], str], ...] = (
    _factor,
    _offset,
    _rounded,
    _about,
    _function,
)
_LOOKS: tuple[Callable[[Any, Any], str], ...] = (
    _nan,
    _case,
    _transposed,
    _type,
    _missing,
    _length,
    _order,
    _opposite,
    *_OF_NUMBERS,
)
