"""Say how a result is wrong that no mistake of the exercise describes, as far as values tell."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..base.rank_names import label
from .compare import Comparison, same
from .result import Result
from .value_heuristics import REORDERED, SWAPPED, flat, numbers, of_numbers, of_pair, plain

#: Results with more parts have no sentence of their own for one of them.
ORDINALS = ("first", "second", "third", "fourth")
#: How the numbers of all ranks may only need to be combined.
COMBINED = (
    (sum, "add up to"),
    (lambda column: sum(column) / len(column), "have as their mean"),
    (max, "have as their largest"),
    (min, "have as their smallest"),
)


def heuristic(result: Result) -> str:
    """Return what all wrong results have in common, in one sentence; "" if nothing is seen."""
    wrong = list(result.wrong.values())
    ranks = result.ranks if result.exercise.where == "ranks" else []
    if ranks and (text := _between_ranks(ranks)):
        return text
    formula = result.exercise.formula
    parts = [pair.parts for pair in wrong if not hasattr(pair.expected, "shape")]
    cases = [case for own in parts for case in own.values() if not case.equal]
    return (
        _in_common(wrong)
        or _in_common(cases)
        or _constant(parts)
        or (formula.slip(result.yours, result.world_size) if formula else "")
        or _of_parts(wrong)
        or _part(cases)
        or _unequal(ranks, wrong)
        or _of_first(cases)
    )


def _alike(values: Collection[Any]) -> bool:
    """Return whether all values are the same."""
    return all(same(value, first) for first in list(values)[:1] for value in values)


def _in_common(pairs: Sequence[Comparison]) -> str:
    """Return what all of these have in common."""
    found = {of_pair(pair.yours, pair.expected) for pair in pairs}
    if found == {SWAPPED, REORDERED}:
        return REORDERED
    return found.pop() if len(found) == 1 else ""


def _constant(parts: Sequence[Mapping[Any, Comparison]]) -> str:
    """Return the sentence that all cases have the same result where they should not."""
    cases = [case for own in parts for case in own.values()]
    if min(map(len, parts), default=0) < 3 or _alike([case.expected for case in cases]):
        return ""
    mine = [case.yours for case in cases]
    if not all(isinstance(value, int | float) for value in mine) or not _alike(mine):
        return ""
    return f"It is {mine[0]!r} in every case."


def _of_first(cases: Sequence[Comparison]) -> str:
    """Return what is seen in the first case, if that has several numbers: of one it may be
    chance."""
    if len(cases) < 2 or len(flat(plain(cases[0].expected))) < 2:
        return ""
    text = of_pair(cases[0].yours, cases[0].expected)
    return text and f"In the first that differs: {text[0].lower()}{text[1:]}"


def _part(cases: Sequence[Comparison]) -> str:
    """Name the parts that are wrong wherever something is, if the others are always right."""
    names = list(cases[0].parts) if cases else []
    if any(list(case.parts) != names for case in cases):
        return ""
    wrong = [name for name in names if not all(case.parts[name].equal for case in cases)]
    right = [name for name in names if name not in wrong]
    if not (wrong and right) or len(names) > len(ORDINALS):
        return ""
    if all(isinstance(name, str) for name in names):
        verb = "is" if len(wrong) == 1 else "are"
        return f"Only {' and '.join(map(repr, wrong))} {verb} wrong."
    if _alike([(case.yours, case.expected) for case in cases]):  # of a single case that is chance
        return ""
    if len(wrong) == 1:
        return f"Of its {len(names)} parts only the {ORDINALS[wrong[0]]} is wrong."
    return f"Of its {len(names)} parts only the {ORDINALS[right[0]]} is right." * (len(right) == 1)


def _of_parts(pairs: Sequence[Comparison]) -> str:
    """Return what the innermost values that differ have in common, on all ranks together."""
    found = [Comparison(plain(pair.yours), plain(pair.expected)).leaves() for pair in pairs]
    parts: list[tuple[Any, Any]] = []
    for _, leaf in (leaf for leaves in found for leaf in leaves):
        part = leaf.yours, leaf.expected
        if not any(same(part, other) for other in parts):  # equal ones of several ranks count once
            parts.append(part)
    if len(parts) == 1 and max(map(len, found)) > 1:
        ((mine, its),) = parts
        if isinstance(mine, str | bool) and isinstance(its, str | bool):
            return f"Where it differs, it is {mine!r} instead of {its!r}."
    if len(parts) < 2:
        return ""
    text = of_numbers(numbers(*map(list, zip(*parts, strict=True))))
    return text.replace("Each number is", "Each number that differs is")


def _unequal(ranks: Sequence[Comparison], wrong: Sequence[Comparison]) -> str:
    """Return the sentence that ranks end with different results where all should have the same; of
    a single one that is wrong the sentence has said so."""
    if len(ranks) < 2 or len(wrong) < 2:
        return ""
    if _alike([pair.expected for pair in ranks]) and not _alike([pair.yours for pair in ranks]):
        return "The ranks' results differ from one another; all should have the same."
    return ""


def _between_ranks(ranks: Sequence[Comparison]) -> str:
    """Return the sentence that ranks have what others should have, or each a part of what all
    should have."""
    n, yours, expected = len(ranks), [p.yours for p in ranks], [p.expected for p in ranks]
    right = [rank for rank, pair in enumerate(ranks) if pair.equal]
    alike = _alike(expected)
    if len(right) == 1 and n > 2 and alike:
        return f"Only {label(right)} has it; every rank has to end with it."
    if not right and alike:
        return _apart(ranks)
    if n < 3 or any(same(expected[r], expected[r - 1]) for r in range(n)):
        return ""
    if len(right) == 1 and all(same(y, expected[right[0]]) for y in yours):
        return f"Every rank has what only {label(right)} should have."
    for k, side in ((1, "after"), (-1, "before")):
        if all(same(yours[r], expected[(r + k) % n]) for r in range(n)):
            return f"Each rank has what the rank {side} it should have."
    if all(same(yours[r], expected[n - 1 - r]) for r in range(n)):
        return "The ranks have each other's results: the first rank that of the last, and so on."
    return ""


def _apart(ranks: Sequence[Comparison]) -> str:
    """Return the sentence that the ranks' results only need to be combined to be what all should
    have."""
    rows = [numbers(pair.yours, ranks[0].expected) for pair in ranks]
    if len(ranks) < 2 or not all(rows) or _alike([pair.yours for pair in ranks]):
        return ""
    columns = list(zip(*([a for a, _ in row] for row in rows), strict=True))
    wanted = [b for _, b in rows[0]]
    for combine, text in COMBINED:
        if all(
            math.isclose(combine(column), number, rel_tol=1e-4)
            for column, number in zip(columns, wanted, strict=True)
        ):
            return f"The ranks' results {text} what each should have: no rank has combined them."
    return ""
