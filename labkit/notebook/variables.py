"""Read and set variables of every rank."""

from __future__ import annotations

import contextlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.errors import LabError, UsageError
from ..base.rank_names import label
from ..runtime.cluster import RankCluster
from ..runtime.follow import Finished, finish, follow
from ..runtime.process_group import GroupManager
from ..runtime.request import Request, send_remote_call, send_remote_calls, values
from ..runtime.watchdog import Suspicion
from ..wire import packing, remote_calls
from ..wire.packing import Packed, Parcel
from ..wire.state import Error, Outcome
from .board import size
from .live import Live, States


def pull(group: GroupManager, name: str, live: Live) -> list[Any]:
    """Return a variable of every rank, or an attribute of one, in rank order.

    UsageError: if a rank does not have it, or it cannot leave its rank.
    """
    ranks = range(group.cluster.size)
    with group.cluster.result_files(ranks) as files:
        calls = {rank: remote_calls.pull(name, files.get(rank)) for rank in ranks}
        finished = _finish(send_remote_calls(group, calls), live, tolerate=True)
        outcomes = finished.outcomes
        missing = {o.rank: o.value[1] for o in outcomes if o.value and o.value[0] == "missing"}
        if missing:
            raise UsageError(_describe_missing(name, missing))
        if finished.error is not None:
            raise finished.error
        return load(outcomes, live, name)


def _describe_missing(name: str, missing: Mapping[int, Error | None]) -> str:
    """Return why ranks have not given a variable: they have none, or it cannot leave them."""
    where = label(list(missing))
    told = next((error for error in missing.values() if error is not None), None)
    if told is None:
        return f"There is no variable {name.partition('.')[0]!r} on {where}."
    kind, text, _ = told
    return f"There is no {name} on {where}: {text}." if kind == "AttributeError" else text


def push(group: GroupManager, payload: Packed, live: Live) -> None:
    """Set variables on every rank from a pickled dict."""
    _ask(group, remote_calls.push(payload), live)


def delete(group: GroupManager, name: str) -> None:
    """Delete a variable where a rank has it.

    UsageError: if none has it.
    """
    finished = _ask(group, remote_calls.delete(name))
    if not any(outcome.value for outcome in finished.outcomes):
        raise UsageError(f"There is no variable {name!r} on {label(range(group.cluster.size))}.")


def names(group: GroupManager, *, modules: bool = False) -> list[str]:
    """Return the names that every rank has, in alphabetical order."""
    first, *others = [o.value for o in _ask(group, remote_calls.list_names(modules)).outcomes]
    return [name for name in first if all(name in other for other in others)]


def _ask(
    group: GroupManager, remote_function: remote_calls.Call[Any], live: Live | None = None
) -> Finished:
    """Make every rank run a remote call."""
    return _finish(send_remote_call(group, range(group.cluster.size), remote_function), live)


def _finish(request: Request, live: Live | None, *, tolerate: bool = False) -> Finished:
    """Wait for a remote call, with the board of the ranks if it takes longer."""

    def show(_: object, states: States, suspicion: Suspicion | None) -> None:
        if live is not None:
            live.offer(lambda: ({}, {}), states, suspicion)

    return finish(request, follow(request, on_tick=show), tolerate=tolerate)


class _Pickler(packing.Pickler):
    """Pickle for ranks: what ``exit`` is in a notebook is there what it is on them."""

    def reducer_override(self, obj: Any) -> Any:
        autocall = sys.modules.get("IPython.core.autocall")
        if autocall is not None and isinstance(obj, autocall.ExitAutocall):
            return pkgutil.resolve_name, ("builtins:exit",)
        return super().reducer_override(obj)


@contextlib.contextmanager
def packed(
    cluster: RankCluster, ranks: Sequence[int], value: Any, live: Live, what: str, instead: str
) -> Iterator[Packed]:
    """Pickle a value for some ranks, which can load it up to the end.

    ``what``: How the sentence of an error names what could not be sent. ``instead``: What it says
    to do instead.

    UsageError: if it cannot be pickled.
    """
    with cluster.shared_file(ranks) as file:
        if file is not None:
            file.on_chunk = _Moved(live, "sent").add
        try:
            payload = packing.pack(_Pickler, value, file)
        except Exception as error:
            why = str(error).rstrip(".") or type(error).__name__
            raise UsageError(f"{what} cannot be sent to the ranks ({why}): {instead}.") from None
        yield payload


def load(outcomes: Sequence[Outcome], live: Live, name: str = "") -> list[Any]:
    """Return what ranks have sent, in their order; ``name`` is that of the variable, if it is one.

    LabError: if it cannot be read here: its class is one of the ranks' only, say.
    """
    packed = [o.value[1] for o in outcomes if o.value is not None]
    total = sum(found.size() for found in packed if isinstance(found, Parcel))
    try:
        return values(list(outcomes), _Moved(live, "received", total).add)
    except Exception as error:
        what = name or "The result"
        why = str(error).rstrip(".") or type(error).__name__
        raise LabError(
            f"{what} has left its ranks, but the notebook cannot read it ({why}). Take what you "
            "need of it: %px part = …, then lab['part']."
        ) from None


class _Moved:
    """Shows how much of a value has been copied: in this process, where no rank is to be seen."""

    def __init__(self, live: Live, verb: str, total: int = 0) -> None:
        self._live = live
        self._verb = verb
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        """Count what was copied."""
        self._done += count
        of = f" of {size(self._total)}" if self._total else ""
        self._live.note(f"{size(self._done)}{of} {self._verb}")
