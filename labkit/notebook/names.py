"""Ask ranks about names: Tab and Shift-Tab in ``%%px`` cells, and what the notebook's cell misses.

IPython asks its own completers, too; it knows the text of the cell, a rank knows the variables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from ..base import interrupts, times
from ..base.errors import LabError
from ..base.rank_names import label
from ..runtime import error_texts
from ..runtime.process_group import GroupManager
from ..runtime.request import send_remote_call
from ..wire import remote_calls
from . import lab
from .shell import add_matcher

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

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
    """Make a notebook's completion and its help ask the ranks of the current lab."""
    add_matcher(shell, complete)
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and not isinstance(vars(kernel).get("do_inspect"), _Inspect):
        vars(kernel)["do_inspect"] = _Inspect(kernel.do_inspect)


@context_matcher(identifier="labkit.ranks")
def complete(context: CompletionContext) -> SimpleMatcherResult:
    """Return what the text before the cursor could become on the ranks."""
    place = find_place(context.full_text, _index(context))
    found = _ask(place, remote_calls.complete) if place else None
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
        found = _ask(place, remote_calls.explain, detail_level) if place else None
        if not found:
            return self.own(code, cursor_pos, detail_level, *more, **named)
        return {"status": "ok", "found": True, "data": found, "metadata": {}}


def _ask(place: Place, call: Callable[..., remote_calls.Call[Any]], *more: Any) -> Any:
    """Return a rank's answer; None where there is no lab that could give one."""
    running = lab.current()
    if running is None:
        return None
    try:
        named = _RANKS.search(place.options)
        ranks = running.check_ranks(lab.parse_ranks(named[1]) if named else None)
        with interrupts.shielded():
            group = lab.session_of(running).group
            return ask_free(group, ranks, call(place.text, place.cursor, *more))
    except LabError:  # also of ranks that have ended, and of --ranks half written
        return None


def ask_free(group: GroupManager, ranks: Sequence[int], call: remote_calls.Call[Any]) -> Any:
    """Return the answer of the first rank with nothing to do, None if there is none in time."""
    free = set(group.cluster.free_ranks())
    chosen = [rank for rank in ranks if rank in free][:1]
    if not chosen:
        return None
    sent = send_remote_call(group, chosen, call)
    sent.result.wait(times.COMPLETION)
    return sent.outcomes()[0].value if sent.result.done() else None


# -- names that the notebook misses -------------------------------------------------------------

_installed: InteractiveShell | None = None


def explain_errors(shell: InteractiveShell) -> None:
    """Begin, once in a shell; ranks' errors learn which names the notebook has."""
    global _installed
    if _installed is not shell:
        _installed = shell
        shell.events.register("post_run_cell", _explain)
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


def _explain(result: Any) -> None:
    """Report below an error of the notebook's where on the ranks is what it misses: when the cell
    has ended, after whatever else shows or handles the error."""
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
    with interrupts.shielded(), interrupts.cancellable():
        found = find_ranks(lab.session_of(running).group, name)
    return of_ranks(name, found, running.world_size) if found else None


def _is_from_cell(trace: TracebackType | None) -> bool:
    """Return whether code of the notebook's own has raised an error: its names are the cells'."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        trace is not None
        and _installed is not None
        and trace.tb_frame.f_globals is _installed.user_global_ns
    )


def of_ranks(name: str, ranks: Sequence[int], size: int) -> str:
    """Return where a name is that the notebook does not have, but these ranks do."""
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
    """Return where the process group is, if the notebook has raised this for want of one."""
    if not _NO_GROUP.search(message):
        return None
    return "The process group is on the ranks, not in the notebook: begin the cell with %%px."


def find_ranks(group: GroupManager, name: str) -> list[int]:
    """Return the ranks that have a name, of those with nothing to do."""
    free = group.cluster.free_ranks()
    if not free:
        return []
    sent = send_remote_call(group, free, remote_calls.list_names(True))
    sent.result.wait(times.COMPLETION)
    done = [rank for rank in free if sent.has_replied(rank)]
    return [o.rank for o in sent.outcomes() if o.rank in done and name in (o.value or ())]
