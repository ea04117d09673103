"""Find where what an answer gave differs from what it should give, for a table that shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .compare import same
from .exercise import Failed

#: Characters of a value; of a longer one the part is shown where it differs.
LONGEST = 160
#: Rows of one rank.
MOST = 6
#: Stands for something that one of the two has not.
NOTHING = "(nothing)"


@dataclass(frozen=True)
class Row:
    """One line of the table: what it is, "" for all of it, and the two texts."""

    what: str
    yours: str
    expected: str


def text_of(value: Any) -> str:
    """Write a value on one line, as Python shows it."""
    return " ".join((str(value) if _is_failure(value) else repr(value)).split())


def describe(value: Any) -> str:
    """Write a value on one line; a long one is cut in the middle."""
    text = text_of(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def rows(yours: Any, expected: Any, labels: Sequence[str] = ()) -> list[Row]:
    """Return a row for each entry that differs, or one for the whole of a short value.

    Parameters
    ----------
    labels
        What the items of the list are, if it is a list of as many.
    """
    if (found := entries(yours, expected, labels)) is None:
        if max(map(len, map(text_of, (yours, expected)))) <= LONGEST and not _hides(
            yours, expected
        ):
            return [_row("", yours, expected)]
        found = leaves(yours, expected)
    shown = [_row(*entry) for entry in found[:MOST]]
    if len(found) > MOST:
        shown.append(Row("…", f"{len(found) - MOST} more differ", ""))
    return shown


def entries(
    yours: Any, expected: Any, labels: Sequence[str] = ()
) -> list[tuple[str, Any, Any]] | None:
    """Return name, yours and expected of the entries that differ; None if there are no names.

    The entries of a dict have their keys.
    """
    pairs: list[tuple[str, Any, Any]] = []
    if (
        isinstance(yours, Mapping)
        and isinstance(expected, Mapping)
        and yours.keys() == expected.keys()
    ):
        pairs = [(str(key), yours[key], expected[key]) for key in expected]
    elif labels and all(
        isinstance(v, list | tuple) and len(v) == len(labels) for v in (yours, expected)
    ):
        pairs = list(zip(labels, yours, expected, strict=True))
    differing = [entry for entry in pairs if not same(*entry[1:])]
    return differing or None


def leaves(yours: Any, expected: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Return place, yours and expected of the innermost parts that differ: ``"[3]['loss']"``."""
    if same(yours, expected):
        return []
    a, b = _items(yours), _items(expected)
    if a is None or b is None or type(a) is not type(b):
        return [(path, yours, expected)]
    found: list[tuple[str, Any, Any]] = []
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*b, *(key for key in a if key not in b)]:
            place = f"{path}[{key!r}]"
            found += leaves(a[key], b[key], place) if key in a and key in b else [
                (place, a.get(key, _Missing()), b.get(key, _Missing()))]  # fmt: skip
        return found
    for i in range(max(len(a), len(b))):
        place = f"{path}[{i}]"
        if i < len(a) and i < len(b):
            found += leaves(a[i], b[i], place)
        else:
            mine, its = (v[i] if i < len(v) else _Missing() for v in (a, b))
            found.append((place, mine, its))
    return found


class _Missing:
    def __repr__(self) -> str:
        return NOTHING


def _items(value: Any) -> list[Any] | dict[Any, Any] | None:
    """Return the parts of a value, None if it has none."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return list(value)
    if bool(getattr(value, "ndim", 0)):
        return list(value)
    return None


def _hides(yours: Any, expected: Any) -> bool:
    """Tell whether tensors look the same, rounded to the digits that torch shows."""
    tensors = all(hasattr(value, "tolist") for value in (yours, expected))
    return tensors and text_of(yours) == text_of(expected) and _kind(yours) == _kind(expected)


def _row(what: str, yours: Any, expected: Any) -> Row:
    """Write a pair down: cut around the first place where the texts differ, if they are long."""
    mine, its = _exact(yours), _exact(expected)
    if mine == its:  # equal texts of unequal values: say how
        return Row(what, f"{mine} ({_kind(yours)})", f"{its} ({_kind(expected)})")
    if max(len(mine), len(its)) <= LONGEST:
        return Row(what, mine, its)
    begin = next((i for i, (a, b) in enumerate(zip(mine, its, strict=False)) if a != b),
                 min(len(mine), len(its)))  # fmt: skip
    begin = max(0, begin - LONGEST // 3)
    if begin:  # at a word
        begin += next((m.end() for m in re.finditer(r"[ ,]+", mine[begin : begin + 30])), 0)
    return Row(what, _window(mine, begin), _window(its, begin))


def _window(text: str, begin: int) -> str:
    end = begin + LONGEST
    return f"{'… ' if begin else ''}{text[begin:end]}{' …' if end < len(text) else ''}"


def _exact(value: Any) -> str:
    """Write a value on one line; a tensor of one element with all of its digits."""
    if hasattr(value, "tolist") and getattr(value, "ndim", 1) == 0:
        return text_of(value.tolist())
    return text_of(value)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    dtype = str(getattr(value, "dtype", "")).replace("torch.", "")
    return type(value).__name__ if shape is None else f"shape {tuple(shape)}, {dtype}"


def _is_failure(value: Any) -> bool:
    return isinstance(value, Failed)
