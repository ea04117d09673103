"""Let a wait for a large message or collective of gloo be interrupted, or given up.

Gloo does not tell a sender of which a part has been written that the connection has ended: in
``Pair::signalException`` of its ``tcp/pair.cc``, those are left out. So a rank that sends or
broadcasts while the receiver is killed would wait until the time limit of the group, and so would
one whose receiver has dropped the handle of its ``irecv``. What is smaller than the buffers of a
connection is written at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from . import side_threads
from .torch_internals import groups
from .torch_internals.groups import ProcessGroup, Work

#: Bytes from which on a rank waits so. It takes some 20 µs more: 2 % of what a message of that
#: size takes.
LARGE = 1 << 20

#: what is large, and the group that it is in
_large: WeakKeyDictionary[Work, ProcessGroup] = WeakKeyDictionary()
#: waits that have begun; a second one for the same joins it, as gloo counts how many have come
_begun: WeakKeyDictionary[Work, side_threads.Attempt] = WeakKeyDictionary()
#: the waits that somebody is in, with the groups
_waiting: dict[side_threads.Attempt, ProcessGroup] = {}
#: groups with a wait that was given up: the destructor of one waits for all that it has begun
_kept: list[ProcessGroup] = []


def note(group: ProcessGroup, tensors: Sequence[torch.Tensor], work: Work | None) -> None:
    """Note what has just been issued, if it is large."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if work is not None and size >= LARGE and groups.serving(group, tensors) == "gloo":
        _large[work] = group


def begin(work: Work, wait: Callable[[], Any]) -> side_threads.Attempt | None:
    """Begin a wait for a work in a side thread, if it is large; end it by :func:`end`."""
    group = _large.get(work)
    if group is None:
        return None
    attempt = _begun.get(work)
    if attempt is None:
        attempt = _begun[work] = side_threads.Attempt(wait)
        side_threads.begin_soon(attempt)
    _waiting[attempt] = group
    return attempt


def end(attempt: side_threads.Attempt) -> None:
    """Note that nobody is in a wait any more."""
    _waiting.pop(attempt, None)


def result(attempt: side_threads.Attempt, error: BaseException | None) -> Any:
    """Return what a wait has returned, or raise its error; the next one gets the same."""
    attempt.ended.put(error)
    if error is not None:
        raise error
    return attempt.value


def give_up() -> int:
    """Let large waits fail; return how many there were."""
    found = list(_waiting.items())
    for attempt, group in found:
        _kept.append(group)
        attempt.ended.put(
            dist.DistNetworkError("Connection closed: labkit ended the wait for data.")
        )
    return len(found)
