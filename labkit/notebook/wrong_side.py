"""Say below an error of the notebook's that what it misses is on the ranks.

It is said when the cell has ended, after the error and whatever else shows or handles that: nobody
sees another error for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import interrupts
from ..errors import LabError
from ..rank_names import label
from ..runtime import error_texts, names
from . import lab

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_installed: InteractiveShell | None = None


def install(shell: InteractiveShell) -> None:
    """Begin, once in a shell; ranks' errors learn which names the notebook has."""
    global _installed
    if _installed is not shell:
        _installed = shell
        shell.events.register("post_run_cell", _tell)
    error_texts.names_of_notebook = _own_names


def _own_names() -> Mapping[str, object]:
    """Return the names that the notebook's cells have defined."""
    if _installed is None:
        return {}
    hidden = _installed.user_ns_hidden
    return {
        name: value
        for name, value in _installed.user_ns.items()
        if not name.startswith("_") and hidden.get(name, _NOTHING) is not value
    }


_NOTHING = object()


def _tell(result: Any) -> None:
    """Say where what a cell has missed is, after its error."""
    error = getattr(result, "error_in_exec", None)
    if error is None or (running := lab.current()) is None or isinstance(error, LabError):
        return
    try:
        sentence = explain(error, running)
    except (LabError, KeyboardInterrupt):  # ranks that have ended; a stop while they are asked
        return
    if sentence:
        print(sentence, file=sys.stderr)


def explain(error: BaseException, running: lab.Lab) -> str | None:
    """Return where what an error of the notebook's cell has missed is; None if it is nowhere."""
    if isinstance(error, ValueError | RuntimeError):
        return of_group(str(error))
    name = getattr(error, "name", None)
    if type(error) is not NameError or not name or not _is_from_cell(error.__traceback__):
        return None
    if name in lab.OWN_NAMES:
        everyone = range(running.world_size)
        return of_ranks(name, everyone, running.world_size)
    with interrupts.held(), interrupts.stoppable():
        found = names.find(lab.session_of(running).group, name)
    return of_ranks(name, found, running.world_size) if found else None


def _is_from_cell(trace: TracebackType | None) -> bool:
    """Tell whether code of the notebook's own has raised an error: its names are the cells'."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        trace is not None
        and _installed is not None
        and trace.tb_frame.f_globals is _installed.user_global_ns
    )


def of_ranks(name: str, ranks: Sequence[int], size: int) -> str:
    """Say where a name is that the notebook does not have, but these ranks do."""
    if name in ("torch", "dist"):
        whole = "torch" if name == "torch" else "torch.distributed as dist"
        return (
            f"{name} is imported on the ranks only: begin the cell with %%px, or write import "
            f"{whole} here."
        )
    where = "the ranks" if len(ranks) == size else label(ranks)
    return f"{name} is a name of {where}: begin the cell with %%px."


#: What torch says where there is no process group, and no way to form one.
_NO_GROUP = re.compile(
    r"Default process group has not been initialized|"
    r"env:// rendezvous: environment variable \w+ expected"
)


def of_group(message: str) -> str | None:
    """Say where the process group is, if the notebook has raised this for want of one."""
    if not _NO_GROUP.search(message):
        return None
    return "The process group is on the ranks, not in the notebook: begin the cell with %%px."
