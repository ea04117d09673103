"""Know the names of cells on this rank: what they are, and those that every cell begins with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from IPython.core.completer import provisionalcompleter
from IPython.utils.tokenutil import token_at_cursor

from ..wire.remote_calls import Suggestion
from . import tracebacks

#: Suggestions that one answer has at most.
MOST = 500

#: What a shell itself gives its cells: no variables.
_of_shell: frozenset[str] = frozenset()
#: What labkit gives to cells.
_given: dict[str, Any] = {}

#: What a function says instead, which does not see the names of cells.
_INSTEAD = {
    "rank": "write dist.get_rank()",
    "world_size": "write dist.get_world_size()",
    "torch": "write import torch in it",
    "dist": "write import torch.distributed as dist in it",
}


def install(shell: Any) -> None:
    """Record what a new shell has of its own."""
    global _of_shell
    _of_shell = frozenset(shell.user_ns) - _given.keys()


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


# -- what every cell begins with ------------------------------------------------------------------


def give(shell: Any, names: Mapping[str, Any]) -> None:
    """Set names for all cells to come."""
    _given.update(names)
    put_back(shell)


def put_back(shell: Any) -> None:
    """Give the names of every cell their values again.

    Code from elsewhere gives them others (``device = "cuda:0"``, ``for rank in range(4)``), and
    later cells would take the wrong device, or all ranks be the same one.
    """
    shell.push(_given, interactive=False)


def tell_changed(shell: Any) -> None:
    """Report which names this cell has given away."""
    names = shell.user_ns
    other = [name for name, value in _given.items() if not _means(names.get(name), value)]
    if other:
        print(
            f"This cell has changed {', '.join(other)}: in the next cell labkit's is back. Use "
            "another name to keep yours.",
            file=sys.stderr,
        )


def explain_missing(error: BaseException, names: Mapping[str, Any]) -> str:
    """Return why a function of the notebook does not know a name that cells have, "" if none
    does."""
    if not isinstance(error, NameError) or not error.name or error.name not in names:
        return ""
    instead = _INSTEAD.get(error.name, "run it in a %%px cell, or pass it as an argument")
    return (
        f"{error.name} is a name of the %%px cells, which a function of lab.run does not see: "
        f"{instead}."
    )


def _means(found: object, given: object) -> bool:
    """Return whether a value is as good as the one that was given: a device may be a string."""
    if isinstance(found, str) and not isinstance(given, int):
        return found == str(given)
    return found is given or (type(found) is type(given) and found == given)
