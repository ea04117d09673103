"""Record what torch's flight recorder leaves out: sends, receives and monitored barriers.

The methods of ``ProcessGroup`` and ``Work`` that every such call goes through are replaced by
ones that count and pass on. A rank that waits stands inside our ``wait``, whose frame holds the
``Work`` it waits for. Counters only grow, which is what makes a deadlock provable: a message that
was sent stays sent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from ...wire.protocol import RECORD_FOLDER, Receive, ReceiveBook, receives_path
from ...wire.samples import MessageKey
from .. import steady
from ..torch_internals import collectives, ended, groups, names, recorder
from ..torch_internals import frames as torch_frames
from ..torch_internals.groups import ProcessGroup, Work
from . import call_details, collective_notes, store_waits

#: ProcessGroup's methods that issue a collective and return its Work.
COLLECTIVES = tuple(
    method
    for methods in collectives.METHODS.values()
    for method in methods
    if method != "monitored_barrier"  # it has no Work; ours counts it
)
#: Stands for the tag of a message on NCCL, which pairs them by their order and takes none.
NO_TAG = -1
#: Entries that torch's flight recorder keeps: enough to explain a hang, and read in 3 ms.
RECORDER_SIZE = "128"


class Message(NamedTuple):
    """One end of a message: the n-th of its kind, with this peer and tag, in this group."""

    group: str
    kind: str  #: "send", "recv" or "recv_any"
    peer: int  #: rank in the group; -1 with "recv_any"
    tag: int
    number: int  #: counted from 1
    me: int  #: this rank's own number in the group


#: group -> (kind, peer, tag) -> how many were posted
posted: WeakKeyDictionary[ProcessGroup, Counter[tuple[str, int, int]]] = WeakKeyDictionary()
#: group -> monitored barriers entered
barriers: WeakKeyDictionary[ProcessGroup, int] = WeakKeyDictionary()
#: when a group was made, nanoseconds since 1970: older entries of the recorder are of another
#: group that had its name
born: WeakKeyDictionary[ProcessGroup, int] = WeakKeyDictionary()
#: what a send's or a receive's Work is about
messages: WeakKeyDictionary[Work, Message] = WeakKeyDictionary()

#: the group in which a collective's Work was issued: a Work knows its number there, not where
homes: WeakKeyDictionary[Work, str] = WeakKeyDictionary()


@dataclass
class Notes:
    """What a timeline wants to know (``profile``), of one thread."""

    thread: int
    #: its waits: start and end, nanoseconds since 1970; group and number of the work, if known
    waits: list[tuple[int, int, str, int]] = field(default_factory=list)
    #: when each message was posted, nanoseconds since 1970, and what it is
    messages: list[tuple[int, Message]] = field(default_factory=list)


#: Stands for the number of a work in the notes of a monitored barrier.
MONITORED = -2
#: Kept while a timeline is recorded, else None.
notes: Notes | None = None
#: file and line of the cells' calls that waited last, and the group; oldest first
places: deque[tuple[str, int, str]] = deque(maxlen=64)

#: messages that nobody has waited for yet, by the identity of their Work
_open: dict[int, weakref.ref[Work]] = {}
#: group -> messages whose handle was dropped before anybody waited: kind, peer, tag, number
dropped: WeakKeyDictionary[ProcessGroup, deque[MessageKey]] = WeakKeyDictionary()
#: futures that were asked for; group and number of the operation of each
futures: list[tuple[Any, str, int | None]] = []

#: torch's own methods, which ours call
original: dict[str, Any] = {}
#: Where each receive is written down before torch posts it: gloo aborts a rank that gets more than
#: its tensor holds, which then cannot tell any more.
_book: ReceiveBook | None = None


def install() -> None:
    """Begin to record; call it before the first process group is formed.

    What torch hides is left out: sends and receives are recorded all together or not at all.
    """
    recorder.check_settings()
    os.environ.setdefault(recorder.SIZE, RECORDER_SIZE)
    if original or not names.is_on("deadlocks"):
        return
    for feature, owner, ours in (
        ("deadlocks", ProcessGroup, (_set_group_name,)),
        ("deadlocks", Work, (wait,)),
        ("futures", Work, (get_future,)),
        ("messages", ProcessGroup, (send, recv, recv_anysource)),
        ("barriers", ProcessGroup, (monitored_barrier,)),
        (
            "collectives",
            ProcessGroup,
            tuple(_noting_home(n) for n in COLLECTIVES if hasattr(ProcessGroup, n)),
        ),
    ):
        for function in ours if names.is_on(feature) else ():
            name = function.__name__
            original[name] = getattr(owner, name)
            setattr(owner, name, function)
    store_waits.install()


def write_receives() -> None:
    """Begin to write receives down, where there is a folder for it."""
    global _book
    folder = os.environ.get(RECORD_FOLDER)
    if _book is None and folder and "recv" in original:
        with contextlib.suppress(OSError):  # no room: the cause of a death is then less exact
            _book = ReceiveBook(receives_path(folder, os.getpid()))


def _noting_home(name: str) -> Callable[..., Work | None]:
    def issue(self: ProcessGroup, *args: Any, **named: Any) -> Work | None:
        ended.check(self)
        work = original[name](self, *args, **named)
        if work is not None:
            homes[work] = self.group_name
        call_details.note_call(self, name, args, work)
        return work

    issue.__name__ = name
    _issuing.add(issue.__code__)
    return issue


#: The code of our functions that issue collectives.
_issuing: set[CodeType] = set()


def root_given(frame: FrameType) -> int | None:
    """Return the root (in the world) of the collective that a frame is about to issue, if any."""
    if frame.f_code not in _issuing:
        return None
    about = frame.f_locals
    root, _ = call_details.ends(about["self"], about["name"], about["args"])
    return None if root is None else dist.get_global_rank(about["self"], root)


def _set_group_name(self: ProcessGroup, name: str) -> None:
    born[self] = steady.since_1970()
    original["_set_group_name"](self, name)


def _note(
    group: ProcessGroup, kind: str, peer: int, tag: int, began: int, tensors: Any, work: Work | None
) -> Work | None:
    """Record a message that was posted. NCCL gives no Work inside a coalesced batch."""
    tag = tag_of(group, tensors, tag)
    counter = posted.setdefault(group, Counter())
    counter[kind, peer, tag] += 1
    number = counter[kind, peer, tag]
    message = Message(group.group_name, kind, peer, tag, number, group.rank())
    call_details.note_message(group, (kind, peer, tag, number), tensors, work, began)
    if work is not None:
        messages[work] = message
        _open[id(work)] = weakref.ref(work, partial(_drop, id(work), weakref.ref(group), message))
    if notes is not None:
        notes.messages.append((began, message))
    return work


def _drop(
    name: int, group: weakref.ref[ProcessGroup], message: Message, _: weakref.ref[Work]
) -> None:
    """Record a message whose handle is gone before anybody waited for it: gloo may forget it."""
    if _open.pop(name, None) is not None and (home := group()) is not None:
        lost = dropped.setdefault(home, deque(maxlen=call_details.KEPT))
        lost.append((message.kind, message.peer, message.tag, message.number))


def _check_peer(group: ProcessGroup, peer: int) -> None:
    """Refuse a peer that is not there: gloo would wait for it forever, or crash."""
    ended.check(group)
    if not 0 <= peer < group.size():
        raise ValueError(
            f"There is no rank {peer} in this group: its ranks go from 0 to {group.size() - 1}."
        )


def send(self: ProcessGroup, tensors: Any, peer: int, tag: int) -> Work | None:
    _check_peer(self, peer)
    began = time.time_ns()
    work = original["send"](self, tensors, peer, tag)
    return _note(self, "send", peer, tag, began, tensors, work)


def recv(self: ProcessGroup, tensors: Any, peer: int, tag: int) -> Work | None:
    _check_peer(self, peer)
    _write_receive(self, "recv", tensors, peer, tag)
    began = time.time_ns()
    work = original["recv"](self, tensors, peer, tag)
    return _note(self, "recv", peer, tag, began, tensors, work)


def recv_anysource(self: ProcessGroup, tensors: Any, tag: int) -> Work | None:
    ended.check(self)
    _write_receive(self, "recv_any", tensors, -1, tag)
    began = time.time_ns()
    work = original["recv_anysource"](self, tensors, tag)
    return _note(self, "recv_any", -1, tag, began, tensors, work)


def _write_receive(
    group: ProcessGroup, kind: str, tensors: Sequence[torch.Tensor], peer: int, tag: int
) -> None:
    if _book is None:
        return
    try:
        world = dist.get_global_rank(group, peer) if peer >= 0 else -1
    except (RuntimeError, ValueError):  # a group that torch does not list
        return
    counted = posted.get(group)
    tag = tag_of(group, tensors, tag)
    number = 1 + (counted[kind, peer, tag] if counted is not None else 0)
    dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
    place = call_details.describe(call_details.find_place())
    count = sum(t.numel() for t in tensors)
    _book.note(Receive(world, tag, number, count, dtype, *place))


def tag_of(group: ProcessGroup, tensors: Sequence[torch.Tensor], tag: int) -> int:
    """Return the tag by which a message of a group finds its other end."""
    return NO_TAG if groups.serving(group, tensors) == "nccl" else tag


def being_posted(group: ProcessGroup) -> Iterator[tuple[str, int, int]]:
    """Yield kind, peer and tag of each message of a group whose call has not returned."""
    for top in sys._current_frames().values():
        frame = torch_frames.skip(top)
        kind = None if frame is None else _POSTING.get(frame.f_code)
        if frame is not None and kind is not None and frame.f_locals["self"] is group:
            about = frame.f_locals
            yield kind, about["peer"], tag_of(group, about["tensors"], about["tag"])


def monitored_barrier(
    self: ProcessGroup, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    ended.check(self)
    barriers[self] = barriers.get(self, 0) + 1
    own = {} if timeout is None else {"timeout": timeout}
    before = groups.issued_by(self, groups.GLOO)
    began = time.time_ns()
    original["monitored_barrier"](self, **own, wait_all_ranks=wait_all_ranks)
    collective_notes.note_others(self, groups.GLOO, groups.issued_by(self, groups.GLOO) - before)
    _note_wait(began, None)


def wait(self: Work, *timeout: timedelta, **named: timedelta) -> Any:
    if (place := call_details.find_place()) is not None:
        places.append((*place, _group_of(self)))
    began = time.time_ns()
    result = original["wait"](self, *timeout, **named)
    _open.pop(id(self), None)
    _note_wait(began, self)
    return result


def get_future(self: Work) -> Any:
    """Return the future of a Work, on which functions may wait to be called (``issuers``)."""
    future = original["get_future"](self)
    forget_futures()
    futures.append((future, homes.get(self, ""), groups.operation(self)))
    return future


def forget_futures() -> None:
    """Release the futures that are done: each keeps its tensors. Both the main thread and the
    one that answers do so."""
    for known in list(futures):
        if known[0].done():
            with contextlib.suppress(ValueError):  # the other one has
                futures.remove(known)


def _group_of(work: Work) -> str:
    """Name the group of a collective or message, "" if it is not known."""
    message = messages.get(work)
    return message.group if message is not None else homes.get(work, "")


def _note_wait(began: int, work: Work | None) -> None:
    """Record a wait that has ended: for a work, or None in a monitored barrier."""
    if notes is None or notes.thread != threading.get_ident():
        return
    ended = time.time_ns()
    if work is None:
        notes.waits.append((began, ended, "", MONITORED))
    else:
        operation = groups.operation(work)
        known = -1 if operation is None else operation
        notes.waits.append((began, ended, homes.get(work, ""), known))


_POSTING: dict[CodeType, str] = {send.__code__: "send", recv.__code__: "recv"}
#: The code of our functions that block: a frame with one of them is a rank that waits.
WAIT: CodeType = wait.__code__
MONITORED_BARRIER: CodeType = monitored_barrier.__code__
