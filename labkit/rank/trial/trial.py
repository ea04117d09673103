"""Try an answer to an exercise on this rank: the part of ``labkit.check`` that runs here."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ...wire.trial import Here
from .. import device, memory, tracebacks
from . import call_counter

#: How long messages of which both ends were posted may take to arrive.
ARRIVAL = timedelta(seconds=1)
#: The default group before the trial.
_group: Any = None


def prepare(name: str) -> bool:
    """Get ready for a trial; tell whether a cell has defined its answer ``name`` here."""
    global _group
    _group, call_counter.current = _world(), call_counter.Count()
    return name in tracebacks.get_shell().user_ns


def run(
    trial: Callable[[Any, Here], Any],
    answer: str,
    forbids: tuple[str, ...],
    ranks: dict[tuple[str, int], int],
) -> tuple[Any, dict[str, int]]:
    """Try the answer to an exercise; return its value and what it took (``MEASURES``).

    ``trial`` calls the answer, which cells have defined by the name ``answer``. ``forbids`` are
    the functions that it must not call. ``ranks`` has the rank of each host and process: a cell
    may have given ``rank`` another value.
    """
    names = tracebacks.get_shell().user_ns
    rank = ranks[socket.gethostname(), os.getpid()]
    with call_counter.counting(forbids, names) as count:
        value = trial(names[answer], Here(rank, len(ranks), memory.device, count.be_late))
        device.finish()
    return value, dict(count.numbers)


def aftermath() -> tuple[list[str], bool]:
    """Return the forbidden calls of the trial, and whether the default group is still the same."""
    global _group
    call_counter.restore()
    before, _group = _group, None
    return list(call_counter.current.forbidden), before is _world()


def settle(wait: bool) -> bool:
    """Let go of the trial's messages. With ``wait``, wait for those that the answer has not
    waited for; tell whether all have arrived. Without it, tell whether there is a default group.

    Gloo forgets its end of a message whose Work is dropped while the other end still comes: the
    next message between the two would be taken for it.
    """
    count = call_counter.current
    messages, count.messages = count.messages, []
    if not wait:
        return dist.is_initialized()
    try:
        for work in messages:
            if not work.is_completed():
                work.wait(ARRIVAL)
    except RuntimeError:
        return False
    return True


def _world() -> Any:
    return dist.group.WORLD if dist.is_initialized() else None
