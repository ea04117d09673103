"""Read and set variables of every rank."""

from __future__ import annotations

import io
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle

from ..base.rank_names import label
from ..errors import LabError, UsageError
from ..runtime.follow import Finished, finish, follow
from ..runtime.process_group import GroupManager
from ..runtime.request import send_remote_call, values
from ..wire import remote_calls
from ..wire.state import Error, Outcome


def pull(group: GroupManager, name: str) -> list[Any]:
    """Return a variable of every rank, or an attribute of one, in rank order.

    UsageError: if a rank does not have it, or it cannot leave its rank.
    """
    finished = _ask(group, remote_calls.pull(name), tolerate=True)
    missing = {o.rank: o.value[1] for o in finished.outcomes if o.value and o.value[0] == "missing"}
    if missing:
        raise UsageError(_describe_missing(name, missing))
    if finished.error is not None:
        raise finished.error
    return load(finished.outcomes, name)


def _describe_missing(name: str, missing: Mapping[int, Error | None]) -> str:
    """Return why ranks have not given a variable: they have none, or it cannot leave them."""
    where = label(list(missing))
    told = next((error for error in missing.values() if error is not None), None)
    if told is None:
        return f"There is no variable {name.partition('.')[0]!r} on {where}."
    kind, text, _ = told
    return f"There is no {name} on {where}: {text}." if kind == "AttributeError" else text


def push(group: GroupManager, payload: bytes) -> None:
    """Set variables on every rank from a pickled dict."""
    _ask(group, remote_calls.push(payload))


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
    group: GroupManager, remote_function: remote_calls.Call[Any], *, tolerate: bool = False
) -> Finished:
    """Make every rank run a remote call."""
    request = send_remote_call(group, range(group.cluster.size), remote_function)
    return finish(request, follow(request), tolerate=tolerate)


class _Pickler(cloudpickle.Pickler):
    """Pickle for ranks: what ``exit`` is in a notebook is there what it is on them."""

    def reducer_override(self, obj: Any) -> Any:
        autocall = sys.modules.get("IPython.core.autocall")
        if autocall is not None and isinstance(obj, autocall.ExitAutocall):
            return pkgutil.resolve_name, ("builtins:exit",)
        return super().reducer_override(obj)


def dump(value: Any, what: str, instead: str) -> bytes:
    """Pickle a value for the ranks.

    ``what``: How the sentence of an error names what could not be sent. ``instead``: What it says
    to do instead.

    UsageError: if it cannot be pickled.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(value)
    except Exception as error:
        why = str(error).rstrip(".") or type(error).__name__
        raise UsageError(f"{what} cannot be sent to the ranks ({why}): {instead}.") from None
    return buffer.getvalue()


def load(outcomes: Sequence[Outcome], name: str = "") -> list[Any]:
    """Return what ranks have sent, in their order; ``name`` is that of the variable, if it is one.

    LabError: if it cannot be read here: its class is one of the ranks' only, say.
    """
    try:
        return values(list(outcomes))
    except Exception as error:
        what = name or "The result"
        why = str(error).rstrip(".") or type(error).__name__
        raise LabError(
            f"{what} has left its ranks, but the notebook cannot read it ({why}). Take what you "
            "need of it: %px part = …, then lab['part']."
        ) from None
