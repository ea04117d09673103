"""Answer Tab and Shift-Tab in ``%%px`` cells as the ranks would: the notebook has other names.

IPython asks its own completers, too; it knows the text of the cell, a rank knows the variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from .. import interrupts
from ..errors import LabError
from ..runtime import names
from . import lab
from .ranks_option import parse_ranks
from .shell import add_matcher

_CELL = re.compile(r"\s*%%px\b(.*)\n")
_LINE = re.compile(r"[ \t]*%px[ \t]+(?=\S)")
_RANKS = re.compile(r"--ranks[ =](\S+)")


@dataclass(frozen=True)
class Place:
    """Where the cursor is in what ranks will run."""

    text: str
    cursor: int  #: characters of ``text`` before it
    options: str = ""  #: of ``%%px``


def find_place(cell: str, cursor: int) -> Place | None:
    """Return where the cursor is in what ranks will run; None if the notebook will run that."""
    if found := _CELL.match(cell):
        if cursor < found.end():
            return None
        return Place(cell[found.end() :], cursor - found.end(), found[1])
    start = cell.rfind("\n", 0, cursor) + 1
    line = cell[start:].partition("\n")[0]
    if (found := _LINE.match(line)) and cursor >= start + found.end():
        return Place(line[found.end() :], cursor - start - found.end())
    return None


def load(shell: Any) -> None:
    """Let a notebook's completion and its help ask the ranks of the current lab."""
    add_matcher(shell, complete)
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and not isinstance(vars(kernel).get("do_inspect"), _Inspect):
        vars(kernel)["do_inspect"] = _Inspect(kernel.do_inspect)


@context_matcher(identifier="labkit.ranks")
def complete(context: CompletionContext) -> SimpleMatcherResult:
    """Return what the text before the cursor could become on the ranks."""
    place = find_place(context.full_text, _index(context))
    found = _ask(names.complete, place) if place else []
    if not place or not found:
        return SimpleMatcherResult(completions=[])
    start = min(one.start for one in found)
    alike = [SimpleCompletion(one.text, type=one.type) for one in found if one.start == start]
    return SimpleMatcherResult(completions=alike, matched_fragment=place.text[start : place.cursor])


def _index(context: CompletionContext) -> int:
    """Return the cursor's place in the whole text, where the context counts within its line."""
    lines = context.full_text.split("\n")
    return sum(len(line) + 1 for line in lines[: context.cursor_line]) + context.cursor_position


class _Inspect:
    """A kernel's answer to Shift-Tab, by a rank where the name is one of a rank's."""

    def __init__(self, own: Callable[..., Any]) -> None:
        self.own = own

    def __call__(
        self, code: str, cursor_pos: int, detail_level: int = 0, *more: Any, **named: Any
    ) -> Any:
        place = find_place(code, cursor_pos)
        found = _ask(names.explain, place, detail_level) if place else None
        if not found:
            return self.own(code, cursor_pos, detail_level, *more, **named)
        return {"status": "ok", "found": True, "data": found, "metadata": {}}


def _ask(what: Callable[..., Any], place: Place, *more: Any) -> Any:
    """Return a rank's answer; None where there is no lab that could give one."""
    running = lab.current()
    if running is None:
        return None
    try:
        named = _RANKS.search(place.options)
        ranks = running.check_ranks(parse_ranks(named[1]) if named else None)
        with interrupts.held():
            return what(lab.session_of(running).group, ranks, place.text, place.cursor, *more)
    except LabError:  # also of ranks that have ended, and of --ranks half written
        return None
