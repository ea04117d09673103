"""Try an answer to an exercise on this rank: the part of ``labkit.check`` that runs here."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch.distributed as dist

from ...base import times
from ...base.errors import LabError
from ...wire.trial import Found, Here, TrialEnd, Watched, find, kind_of, unusable
from .. import memory, tracebacks
from ..observe import device, flight_recorder
from ..pickling import dump
from ..torch_internals import frames as torch_frames
from ..torch_internals import groups, trial_groups
from . import call_counter, constants

#: Where code stands that calls other ranks: torch's, and labkit's around it.
_BETWEEN_RANKS = (
    str(Path(torch_frames.TORCH) / "distributed"),
    str(Path(__file__).parents[1] / "observe"),
)
#: The default group before the trial.
_group: Any = None
#: All groups before the trial.
_before: WeakSet[groups.ProcessGroup] = WeakSet()


def prepare(name: str) -> Found:
    """Get ready for a trial; tell what cells have defined by the name of its answer here."""
    global _group, _before
    _group, call_counter.current = _world(), call_counter.Count()
    _before = WeakSet(groups.groups())
    return find(name, tracebacks.get_shell().user_ns)


def run(
    trial: Callable[[Any, Here], Any],
    answer: str,
    forbids: tuple[str, ...],
    ranks: dict[tuple[str, int], int],
    world_size: int,
) -> tuple[Any, dict[str, int]]:
    """Try the answer to an exercise; return its value and what it took (``MEASURES``).

    ``trial`` calls the answer, which cells have defined by the name ``answer``. ``forbids`` are
    the functions that it must not call. ``ranks`` has the rank of each host and process: a cell
    may have given ``rank`` another value. If ``world_size`` is smaller, only the first ranks try.
    """
    names = tracebacks.get_shell().user_ns
    rank = ranks[socket.gethostname(), os.getpid()]
    if world_size == len(ranks):
        return _run(trial, answer, forbids, Here(rank, world_size, memory.device))
    with _fewer(world_size, names):
        if rank < world_size:
            return _run(trial, answer, forbids, Here(rank, world_size, memory.device))
    return None, {}


def _run(
    trial: Callable[[Any, Here], Any], answer: str, forbids: tuple[str, ...], here: Here
) -> tuple[Any, dict[str, int]]:
    names = tracebacks.get_shell().user_ns
    watched = names[answer]
    if not isinstance(watched, type):
        watched = Watched(watched)
    with call_counter.counting(forbids, names) as count:
        try:
            value = trial(watched, replace(here, be_late=count.be_late))
        except Exception as error:
            if not isinstance(watched, Watched) or not _is_of_trial(error):
                raise
            value = unusable(error, watched)
        device.finish()
    return _sendable(value, watched), dict(count.numbers)


@contextmanager
def _fewer(world_size: int, names: dict[str, Any]) -> Iterator[None]:
    """Make the first ranks be all there are: for torch, for cells and in the environment."""
    places: tuple[tuple[Any, str, Any], ...] = (
        (names, "world_size", world_size),
        (os.environ, "WORLD_SIZE", str(world_size)),
    )
    before = [place.get(name) for place, name, _ in places]
    with trial_groups.world_of(world_size):
        try:
            for place, name, value in places:
                place[name] = value
            yield
        finally:
            for (place, name, _), value in zip(places, before, strict=True):
                place[name] = value


def may_fix_size(answer: str, world_size: int) -> bool:
    """Return whether an answer may contain the number of ranks as a constant."""
    return constants.may_fix_size(tracebacks.get_shell().user_ns[answer], world_size)


def _is_of_trial(error: Exception) -> bool:
    """Return whether an error arose where the trial used what the answer gave: in no cell, in no
    call between ranks."""
    files = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    elsewhere = isinstance(error, LabError | OSError | dist.DistError)
    return not elsewhere and not any(
        tracebacks.is_cell(file) or file.startswith(_BETWEEN_RANKS) for file in files
    )


def _sendable(value: Any, answer: Any) -> Any:
    """Return a value, or what to say of one that cannot be sent to the notebook."""
    try:
        dump(value)
    except Exception as error:
        own = answer if isinstance(answer, Watched) else Watched(lambda: value)
        return replace(unusable(error, own), returned=kind_of(own.last if own.ended else value))
    return value


def end(wait: bool) -> TrialEnd:
    """End the trial. With ``wait``, wait a moment for messages that the answer has not waited for.

    Gloo forgets its end of a message whose Work is dropped while the other end still comes: the
    next message between the two would be taken for it.
    """
    global _group
    call_counter.restore()
    before, _group = _group, None
    count = call_counter.current
    messages, count.messages = count.messages, []
    same = before is _world()
    arrived = wait and same and _have_arrived(messages)
    if arrived:
        _destroy_unused()
    return TrialEnd(tuple(count.forbidden), dist.is_initialized(), same, arrived)


def _destroy_unused() -> None:
    """Destroy groups that the trial has made and nobody holds: an answer makes them anew each
    time. One with work under way is left, for that would be waited for; so are all if there is
    no record of it."""
    if not flight_recorder.is_recording():
        return
    busy = {flight_recorder.home_of(part) for (part, _), _ in flight_recorder.pending()}
    trial_groups.destroy_made(busy)
    trial_groups.destroy_unused((g for g in groups.groups() if g not in _before), busy)


def _have_arrived(messages: Iterable[Any]) -> bool:
    """Wait for messages of which both ends were posted; return whether all have arrived."""
    try:
        for work in messages:
            if not work.is_completed():
                work.wait(timedelta(seconds=times.MESSAGES_ARRIVED.seconds()))
    except RuntimeError:
        return False
    return True


def _world() -> Any:
    return dist.group.WORLD if dist.is_initialized() else None
