"""Keep the names that every cell begins with: a cell may give them other values, until it ends.

Code from elsewhere does (``device = "cuda:0"``, ``for rank in range(world_size)``), and later cells
would take the wrong device, or all ranks be the same one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_given: dict[str, Any] = {}

#: What a function says instead, which does not see the names of cells.
_INSTEAD = {
    "rank": "write dist.get_rank()",
    "world_size": "write dist.get_world_size()",
    "torch": "write import torch in it",
    "dist": "write import torch.distributed as dist in it",
}


def give(shell: Any, names: Mapping[str, Any]) -> None:
    """Set names for all cells to come."""
    _given.update(names)
    _put_back(shell)


def keep(shell: Any) -> None:
    """Tell a cell that gives one of the names another value, and put it back for the next cell."""
    shell.events.register("pre_run_cell", lambda info: _put_back(shell))
    shell.events.register("post_run_cell", lambda result: _tell(shell))


def _put_back(shell: Any) -> None:
    shell.push(_given, interactive=False)


def _tell(shell: Any) -> None:
    """Say which names this cell has given away."""
    names = shell.user_ns
    other = [name for name, value in _given.items() if not _means(names.get(name), value)]
    if other:
        print(
            f"This cell has changed {', '.join(other)}: in the next cell labkit's is back. Use "
            "another name to keep yours.",
            file=sys.stderr,
        )


def explain(error: BaseException, names: Mapping[str, Any]) -> str:
    """Say why a function of the notebook does not know a name that cells have, "" if none does."""
    if not isinstance(error, NameError) or not error.name or error.name not in names:
        return ""
    instead = _INSTEAD.get(error.name, "run it in a %%px cell, or pass it as an argument")
    return (
        f"{error.name} is a name of the %%px cells, which a function of lab.run does not see: "
        f"{instead}."
    )


def _means(found: object, given: object) -> bool:
    """Tell whether a value is as good as the one that was given: a device may be a string."""
    if isinstance(found, str) and not isinstance(given, int):
        return found == str(given)
    return found is given or (type(found) is type(given) and found == given)
