"""Tell what a cell that is being written could say: what its names are on this rank."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from IPython.core.completer import provisionalcompleter
from IPython.utils.tokenutil import token_at_cursor

from ..wire.names import Suggestion
from . import tracebacks

#: Suggestions that one answer has at most.
MOST = 500

#: What a shell itself gives its cells: no variables.
_of_shell: frozenset[str] = frozenset()


def install(shell: Any, given: Mapping[str, Any]) -> None:
    """Note what a new shell has of its own; ``given`` is what labkit gives to cells."""
    global _of_shell
    _of_shell = frozenset(shell.user_ns) - given.keys()


def list_names(modules: bool) -> list[str]:
    """Return the names that cells have, in alphabetical order; with ``modules`` those of modules
    too."""
    names = tracebacks.get_shell().user_ns
    return sorted(
        name
        for name, value in names.items()
        if not name.startswith("_")
        and name not in _of_shell
        and (modules or not isinstance(value, ModuleType))
    )


def complete(cell: str, cursor: int) -> list[Suggestion]:
    """Return what the text before the cursor could become, by the variables of the cells.

    Without Jedi, which reads text and takes a third of a second to import: the notebook's own
    completion has that already.
    """
    completer = tracebacks.get_shell().Completer
    before, completer.use_jedi = completer.use_jedi, False
    try:
        with provisionalcompleter():
            found = completer.completions(cell, cursor)
            return [
                _without_owner(Suggestion(one.start, one.text, one.type or ""), cell[:cursor])
                for one, _ in zip(found, range(MOST), strict=False)
                if one.end == cursor
            ]
    finally:
        completer.use_jedi = before


def _without_owner(one: Suggestion, before: str) -> Suggestion:
    """Leave out what stands there up to a dot, which IPython suggests anew."""
    owner = before[one.start :].rpartition(".")
    known = len(owner[0]) + len(owner[1])
    if not one.text.startswith(before[one.start : one.start + known]):
        return one
    return Suggestion(one.start + known, one.text[known:], one.type)


def explain(cell: str, cursor: int, detail: int) -> dict[str, str]:
    """Return the help on the name at the cursor, by MIME type; nothing where there is no such name.

    ``detail`` is 1 for the source, too.
    """
    try:
        name = token_at_cursor(cell, cursor)
        found = tracebacks.get_shell().object_inspect_mime(name, detail_level=detail)
    except KeyError:
        return {}
    return {kind: text for kind, text in found.items() if isinstance(text, str)}
