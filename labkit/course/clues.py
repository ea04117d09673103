"""Say how a result is wrong that no mistake of the exercise describes, as far as values tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..rank_names import label
from .compare import same
from .difference import leaves
from .value_clues import (
    OF_NUMBERS,
    REORDERED,
    SWAPPED,
    are_lists,
    flat,
    numbers,
    of_pair,
    plain,
)

#: Results with more parts have no clue of their own for one of them.
ORDINALS = ("first", "second", "third", "fourth")


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
    found = {of_pair(y, e) for y, e in pairs}
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
    if len(cases) < 2 or len(flat(plain(cases[0][1]))) < 2:
        return ""
    text = of_pair(*cases[0])
    return text and f"In the first that differs: {text[0].lower()}{text[1:]}"


def _items(yours: Any, expected: Any) -> dict[Any, tuple[Any, Any]]:
    """Return the parts of two values side by side, by place or key; none if they have others."""
    if isinstance(yours, Mapping) and isinstance(expected, Mapping):
        keys = expected.keys() if yours.keys() == expected.keys() else ()
        return {key: (yours[key], expected[key]) for key in keys}
    if not are_lists(yours, expected):
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
    several = any(len(leaves(*map(plain, pair))) > 1 for pair in pairs)
    if several and len(parts) == 1 and all(isinstance(value, str | bool) for value in parts[0]):
        return f"Where it differs, it is {parts[0][0]!r} instead of {parts[0][1]!r}."
    if len(parts) < 2 or not _are_numbers(parts):
        return ""
    mine, its = (list(values) for values in zip(*parts, strict=True))
    text = next((text for look in OF_NUMBERS if (text := look(mine, its))), "")
    return text.replace("Each number is", "Each number that differs is")


def _innermost(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the innermost values that differ, equal ones of several ranks once."""
    parts: list[tuple[Any, Any]] = []
    for pair in pairs:
        for _, a, b in leaves(*map(plain, pair)):
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
    rows = [numbers(y, expected) for y in yours]
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
