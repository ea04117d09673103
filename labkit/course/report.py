"""Write what came of a check: yours beside expected, the goals, and one verdict.

Plain text with colours that every theme of JupyterLab and every terminal has, and the same text
for the same result: the stored notebooks are compared with it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..errors import WIDTH
from ..notebook.show import plain
from ..rank_names import fold, label
from .compare import same
from .difference import describe, rows
from .exercise import Failed
from .judge import Result, Verdict

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
    """Tell whether there is a value to set beside the expected one: without one, that would only
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
    cells: dict[int, tuple[tuple[str, ...], ...]] = {}
    for rank, (yours, expected) in enumerate(zip(result.yours, result.expected, strict=True)):
        if same(yours, expected):
            cells[rank] = (("", describe(yours), describe(expected), GOOD),)
        else:
            found = rows(yours, expected, labels)
            cells[rank] = tuple((row.what, row.yours, row.expected, BAD) for row in found)
    lines = []
    for ranks, own in fold(cells):
        for what, yours, expected, mark in own:
            name = ": ".join(filter(None, [label(ranks) if on_ranks else "", what]))
            lines.append((name, yours, expected, mark))
    return _table(lines)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay rows of (ranks, yours, expected, mark) out: beside each other if there is room.

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
    for goal in result.exercise.goals:
        limit = goal.limit(result.world_size)
        allowed = f"at most {limit:,}" if goal.most is not None else f"exactly {limit:,}"
        counted = {r: count for r, count in enumerate(result.counts) if count is not None}
        if len(counted) < result.world_size:
            lines.append(f"{goal.measure}: not counted (allowed: {allowed})")
            continue
        texts = {r: f"{count[goal.measure]:,}" for r, count in counted.items()}
        met = all(goal.is_met(c[goal.measure], result.world_size) for c in counted.values())
        folded = fold(texts)
        yours = folded[0][1] if len(folded) == 1 else "; ".join(
            f"{label(ranks)}: {text}" for ranks, text in folded)  # fmt: skip
        each = " per rank" if len(folded) == 1 else ""
        lines.append(f"{goal.measure}{each}: {yours} (allowed: {allowed}) {GOOD if met else BAD}")
    return lines
