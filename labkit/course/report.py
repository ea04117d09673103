"""Write what came of a check: yours beside expected, the goals, and one verdict.

Plain text with colours that every theme of JupyterLab and every terminal has, and the same text
for the same result: the stored notebooks are compared with it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from ..base.errors import WIDTH
from ..base.rank_names import fold, label
from ..notebook.show import plain
from .compare import Comparison
from .exercise import Failed
from .result import Result
from .verdict import Verdict

#: Characters of a value; of a longer one the part is shown where it differs.
LONGEST = 160
#: Rows of one rank.
MOST = 6
#: Characters of an entry that has room on one line, yours beside expected.
COLUMN = 40
#: What a row is about, "" for all of it, then yours, expected and the mark.
Row = tuple[str, str, str, str]
GOOD, BAD = "\x1b[32m✓\x1b[0m", "\x1b[31m✗\x1b[0m"


def report(result: Result, verdict: Verdict) -> str:
    """Return the whole text."""
    exercise = result.exercise
    lines = [f"\x1b[1m{exercise.id}  {exercise.title}\x1b[0m"]
    lines += [f"{GOOD if good else BAD} {part}" for part, good in result.parts]
    if _has_something_to_show(result):
        lines += _values(result)
    if result.was_tried:
        lines += _goals(result)
    lines += [note.rstrip("\n") for note in result.notes]
    if verdict.passed:
        lines.append(f"\x1b[1;32m{exercise.id} passed.\x1b[0m")
    else:
        lines.append(f"\x1b[1;31m{exercise.id} not yet.\x1b[0m")
        lines += _balanced(verdict.sentence)
        lines.append("labkit.hint() gives a hint.")
    return "\n".join(lines) + "\n"


def _has_something_to_show(result: Result) -> bool:
    """Return whether there is a value to set beside the expected one: without one, that would only
    give the result away."""
    if not result.was_tried or result.gave_nothing:
        return False
    if result.parts and not result.wrong:  # said in its parts
        return False
    return not all(isinstance(y, Failed) and y.unusable is None for y in result.yours)


def _balanced(text: str) -> list[str]:
    """Wrap a sentence into as few lines as it needs, none of them much shorter than the others."""

    def wrapped(width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)

    fewest = len(wrapped(WIDTH))
    return next(lines for width in range(1, WIDTH + 1) if len(lines := wrapped(width)) <= fewest)


def _values(result: Result) -> list[str]:
    """Set yours beside expected, ranks with the same of both on one line.

    Of a result that differs, each entry that differs has a line of its own, if entries have names.
    """
    on_ranks = result.exercise.where == "ranks"
    labels = result.exercise.labels(result.world_size)
    cells = {rank: rows(pair, labels) for rank, pair in enumerate(result.ranks)}
    lines = []
    for ranks, own in fold(cells):
        for what, yours, expected, mark in own:
            name = ": ".join(filter(None, [label(ranks) if on_ranks else "", what]))
            lines.append((name, yours, expected, mark))
    return _table(lines)


def rows(pair: Comparison, labels: Sequence[str] = ()) -> tuple[Row, ...]:
    """Return one row for the whole of a right or short value, else one for each entry that differs:
    ``labels`` say what the items of a list are, if it has as many. A right value that is too long
    for a row has one for each entry, if these are few and short."""
    if pair.equal:
        named = pair.named(labels)
        few_and_short = len(named) <= MOST and all(
            len(_text(part.expected)) <= COLUMN for _, part in named
        )
        if len(_text(pair.expected)) > LONGEST and named and few_and_short:
            return tuple((what, _text(p.yours), _text(p.expected), GOOD) for what, p in named)
        return (("", describe(pair.yours), describe(pair.expected), GOOD),)
    found = pair.entries(labels)
    if not found:
        if max(len(_text(v)) for v in (pair.yours, pair.expected)) <= LONGEST and not _hides(pair):
            return (_row("", pair),)
        found = pair.leaves()
    shown = [_row(what, part) for what, part in found[:MOST]]
    if len(found) > MOST:
        shown.append(("…", f"{len(found) - MOST} more differ", "", BAD))
    return tuple(shown)


def _text(value: Any) -> str:
    """Write a value on one line, as Python shows it."""
    return " ".join((str(value) if isinstance(value, Failed) else repr(value)).split())


def describe(value: Any) -> str:
    """Write a value on one line; a long one is cut in the middle."""
    text = _text(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def _hides(pair: Comparison) -> bool:
    """Return whether tensors look the same, rounded to the digits that torch shows."""
    yours, expected = pair.yours, pair.expected
    tensors = all(hasattr(value, "tolist") for value in (yours, expected))
    return tensors and _text(yours) == _text(expected) and _kind(yours) == _kind(expected)


def _row(what: str, pair: Comparison) -> Row:
    """Write a pair down: cut around the first place where the texts differ, if they are long."""
    mine, its = _exact(pair.yours), _exact(pair.expected)
    if mine == its:  # equal texts of unequal values: say how
        return what, f"{mine} ({_kind(pair.yours)})", f"{its} ({_kind(pair.expected)})", BAD
    if max(len(mine), len(its)) <= LONGEST:
        return what, mine, its, BAD
    pairs = enumerate(zip(mine, its, strict=False))
    begin = next((i for i, (a, b) in pairs if a != b), min(len(mine), len(its)))
    begin = max(0, begin - LONGEST // 3)
    if begin:  # at a word
        begin += next((m.end() for m in re.finditer(r"[ ,]+", mine[begin : begin + 30])), 0)
    return what, _window(mine, begin), _window(its, begin), BAD


def _window(text: str, begin: int) -> str:
    end = begin + LONGEST
    return f"{'… ' if begin else ''}{text[begin:end]}{' …' if end < len(text) else ''}"


def _exact(value: Any) -> str:
    """Write a value on one line; a tensor of one element with all of its digits."""
    if hasattr(value, "tolist") and getattr(value, "ndim", 1) == 0:
        return _text(value.tolist())
    return _text(value)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    dtype = str(getattr(value, "dtype", "")).replace("torch.", "")
    return type(value).__name__ if shape is None else f"shape {tuple(shape)}, {dtype}"


def _table(rows: Sequence[Row]) -> list[str]:
    """Lay rows out: beside each other if there is room.

    Without room yours stands above expected, and the mark beside the ranks; beside yours if there
    are none.
    """
    head = ["", "yours", "expected", ""]
    widths = [max(len(plain(row[i])) for row in [head, *rows]) for i in range(4)]
    if sum(widths) + 2 * len(widths) <= WIDTH:
        lines = []
        for row in [head, *rows]:
            cells = [f"{cell:<{width}}" for cell, width in zip(row[:3], widths[:3], strict=True)]
            lines.append("  ".join([*cells, row[3]]).rstrip())
        return lines
    lines = []
    for ranks, yours, expected, mark in rows:
        if ranks:
            lines.append(f"{ranks}  {mark}")
        for name, text, before in (
            ("yours", yours, " " if ranks else mark),
            ("expected", expected, " "),
        ):
            indent = " " * 12
            wrapped = textwrap.wrap(text, WIDTH - 12, break_on_hyphens=False) or [""]
            lines.append(f"{before} {name:<10}" + f"\n{indent}".join(wrapped))
    return lines


def _goals(result: Result) -> list[str]:
    lines = []
    for cost in result.costs:
        goal = cost.goal
        allowed = f"{'at most' if goal.most is not None else 'exactly'} {cost.limit:,}"
        if not cost.is_counted:
            lines.append(f"{goal.measure}: not counted (allowed: {allowed})")
            continue
        folded = fold({rank: f"{count:,}" for rank, count in enumerate(cost.counts)})
        yours = "; ".join(f"{label(ranks)}: {text}" for ranks, text in folded)
        each = ""
        if len(folded) == 1:
            yours, each = folded[0][1], " per rank"
        mark = BAD if cost.missed else GOOD
        lines.append(f"{goal.measure}{each}: {yours} (allowed: {allowed}) {mark}")
    return lines
