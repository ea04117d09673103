"""Sort the events of torch's profiler on one rank: what is computing, what is communication.

On gloo a collective is an event of the thread that runs it, from the moment in which that thread
takes it up; DDP's are among them. The flight recorder knows when it was issued, its group, number
and shapes, but keeps only the last ones (``record.RECORDER_SIZE``): older ones count from when
they were taken up, and their numbers are counted back. Messages are matched with the notes of
``p2p_record``. On NCCL communication and computing are kernels of the GPU.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...base import times
from ...wire.recording import COMMUNICATION, CONTINUED, Event, Interval, common, union, without
from ..torch_internals.recorder import BYTES, Issued

#: Names that torch gives its events.
LOADING = "enumerate(DataLoader)#"
OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#(\w+)")
NODE = "autograd::engine::evaluate_function"
MESSAGES = {"send": "send", "recv": "recv", "recvAnySource": "recv_any"}
LAUNCH = re.compile(r"(?:cuda|cu|hip)[A-Z]")
NCCL_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_?(\w*)", re.IGNORECASE)
#: The kinds of a trace's events that ran on a GPU.
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
#: Work inside work (a closure of the optimizer, a forward computed again) is as deep as this.
DEPTH = 8
#: Stands for the number of a work in ``Material.waits``, for a monitored barrier.
MONITORED = -2


class Raw(NamedTuple):
    """An event of torch's trace; nanoseconds of the system's clock."""

    name: str
    start: int
    stop: int
    thread: int  #: the system's number of the thread; of a stream, on a GPU
    device: bool = False  #: ran on a GPU
    correlation: int = 0  #: equal for a kernel and its launch


@dataclass
class Material:
    """All that a rank has about what it did; nanoseconds of its system clock."""

    main: int  #: the main thread's number
    raws: list[Raw]
    #: The main thread's forwards and backwards.
    marked: Sequence[Event] = ()
    #: Waits of the main thread in ``Work.wait``: start, end, the work's group and ``op_id``.
    waits: list[tuple[int, int, str, int]] = field(default_factory=list)
    #: Entries of torch's flight recorder, oldest first.
    entries: list[Issued] = field(default_factory=list)
    #: When each send and receive was posted and its ``record.Message``, in the order of the calls.
    messages: list[tuple[int, Any]] = field(default_factory=list)
    #: group -> its ranks
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)


def read(trace: Mapping[str, Any]) -> list[Raw]:
    """Return what is of use in a trace of torch (``export_chrome_trace``), by start."""
    zero = trace.get("baseTimeNanoseconds", 0)
    found = []
    for event in trace["traceEvents"]:
        kind, name = event.get("cat", ""), event["name"]
        device = kind in DEVICE
        if event["ph"] != "X" or not (device or _is_known(name)) or kind.startswith("gpu_user"):
            continue
        start = zero + round(event["ts"] * 1000)
        stop = start + round(event["dur"] * 1000)
        correlation = event.get("args", {}).get("correlation", 0)
        found.append(Raw(name, start, stop, event["tid"], device, correlation))
    return sorted(found, key=lambda raw: raw.start)


def _is_known(name: str) -> bool:
    return name.startswith((LOADING, NODE)) or any(
        pattern.match(name) for pattern in (COMMUNICATION, OPTIMIZER, LAUNCH)
    )


def sort(material: Material) -> list[Event]:
    """Return what the rank did, in the order in which it began."""
    work = done = _work(material)
    if launched := _kernels(material, done):  # loading happens on the CPU all the same
        work = [*launched, *(e for e in done if e.kind == "data loading")]
    talk = _kernel_talk(material) or [*_collectives(material, done), *_messages(material)]
    blocked = _blocked(material, work, talk, gpu=bool(launched))
    found = [*work, *talk, *(Event("blocked", "", int(a), int(b)) for a, b in blocked)]
    return sorted(found, key=lambda e: (e.start, -e.stop))


# -- computing ----------------------------------------------------------------------------------


def _work(material: Material) -> list[Event]:
    """Return what the main thread did."""
    found = list(material.marked)
    for raw in material.raws:
        if raw.device or raw.thread != material.main:
            continue
        if raw.name.startswith(LOADING):
            found.append(Event("data loading", "next batch", raw.start, raw.stop))
        elif match := OPTIMIZER.match(raw.name):
            found.append(Event("optimizer", f"{match[2]}.{match[1]}", raw.start, raw.stop))
    return sorted(found, key=lambda e: (e.start, -e.stop))


def _around(work: Sequence[Event], starts: Sequence[int], moment: float) -> Event | None:
    """Return the innermost work at a moment; ``starts`` are those of ``work``, in order."""
    last = bisect_right(starts, moment) - 1
    for i in range(last, max(-1, last - DEPTH), -1):
        if work[i].stop >= moment:
            return work[i]
    return None


def _blocked(
    material: Material, work: Sequence[Event], talk: Sequence[Event], *, gpu: bool
) -> list[Interval]:
    """Find when the main thread stood still until communication ended.

    In ``Work.wait``; and at the end of a backward, when all of autograd has run and DDP waits for
    its buckets in C++. A GPU stands still when it communicates and runs nothing else.
    """
    talking = [(e.start, e.stop) for e in talk]
    if gpu:
        return without(talking, [(e.start, e.stop) for e in work])
    nodes = sorted(r.stop for r in material.raws if r.name.startswith(NODE))
    tails: list[Interval] = []
    for event in work:
        if event.kind == "backward":
            last = bisect_right(nodes, event.stop) - 1
            tails.append((max(nodes[last], event.start) if last >= 0 else event.start, event.stop))
    return union([*(wait[:2] for wait in material.waits), *common(tails, talking)])


# -- communication ------------------------------------------------------------------------------


def _collectives(material: Material, work: Sequence[Event]) -> list[Event]:
    """Match the profiler's collectives with the flight recorder's, group by group."""
    raws = [
        raw
        for raw in material.raws
        if not raw.device and (match := COMMUNICATION.match(raw.name))
        and match[1] not in MESSAGES
    ]  # fmt: skip
    homes = _homes(raws, material.entries)
    waited = {(home, operation): (a, b) for a, b, home, operation in material.waits}
    backwards = [e for e in work if e.kind == "backward"]
    starts = [e.start for e in backwards]
    events = []
    for group in dict.fromkeys(homes.get(raw.thread, "") for raw in raws):
        members = tuple(material.groups.get(group, ()))
        mine = [raw for raw in raws if homes.get(raw.thread, "") == group]
        found = _pair(mine, [e for e in material.entries if e.group == group])
        for raw, entry, number in zip(mine, found, _numbers(found), strict=True):
            start = min(raw.start, entry.created) if entry else raw.start
            end = None
            if entry:  # the group of a work is not always known
                operation = entry.operation
                end = waited.get((group, operation), waited.get(("", operation)))
            stop = _end(raw, start, end, _around(backwards, starts, start))
            name = raw.name.partition(":")[2]
            key = ("collective", group, members, number)
            size = _size(entry) if entry else None
            events.append(Event("communication", name, start, stop, size, key, members))
    return events


def _pair(raws: Sequence[Raw], entries: Sequence[Issued]) -> list[Issued | None]:
    """Return each collective's entry, None where the recorder has forgotten it.

    Both are in order. Where the recorder has fewer it has forgotten the oldest; where it has more,
    the recording stopped before the newest ended.
    """
    found: dict[int, Issued] = {}
    for name in {raw.name for raw in raws}:
        places = [i for i, raw in enumerate(raws) if raw.name == name]
        same = [entry for entry in entries if entry.name == name]
        found.update(zip(places[-len(same) :] if same else [], same, strict=False))
    return [found.get(i) for i in range(len(raws))]


def _end(raw: Raw, start: int, wait: tuple[int, int] | None, backward: Event | None) -> int:
    """Return when a collective was done: when who waited for it went on.

    On a busy machine the thread that ran it may be put aside before it tells the profiler, and
    who waits may be woken late. Who waits is the main thread in ``Work.wait``; or DDP, at the
    end of the backward that issued it, if nobody else did.
    """
    if wait is None:
        return max(start, min(raw.stop, backward.stop if backward else raw.stop))
    return max(start, wait[1] if wait[0] <= raw.stop else raw.stop)


def _homes(raws: Sequence[Raw], entries: Sequence[Issued]) -> dict[int, str]:
    """Return the group of each thread.

    A thread works for one group, so an event that only one group can have issued tells it; the
    threads without such an event may have what the others leave.
    """
    if len(groups := {e.group for e in entries}) == 1:
        return dict.fromkeys((raw.thread for raw in raws), *groups)
    homes: dict[int, str] = {}
    for raw in raws:
        fits = {e.group for e in entries if _fits(raw, e)}
        if len(fits) == 1:
            homes.setdefault(raw.thread, *fits)
    left = list(entries)
    for raw in sorted(raws, key=lambda r: (r.thread not in homes, r.start)):
        home = homes.get(raw.thread)
        fits_best = next((e for e in left if _fits(raw, e) and home in (None, e.group)), None)
        if fits_best is not None:
            homes[raw.thread] = fits_best.group
            left.remove(fits_best)
    return homes


def _fits(raw: Raw, entry: Issued) -> bool:
    """Return whether a collective that a thread took up may be one that was issued: the same name,
    and issued before (but for the grain of the two clocks)."""
    return entry.name == raw.name and entry.created <= raw.start + times.CLOCKS_APART_NANOSECONDS


def _numbers(found: Sequence[Issued | None]) -> list[int]:
    """Number a group's collectives as the flight recorder does, those before its oldest too."""
    known = {i: entry.number for i, entry in enumerate(found) if entry}
    numbers: list[int] = []
    for i in range(len(found)):
        near = min(known, key=lambda j: abs(j - i), default=None)
        numbers.append(i + 1 if near is None else known[near] + i - near)
    return numbers


def _size(entry: Issued) -> int | None:
    sizes, types = entry.shapes, entry.types
    if len(sizes) != len(types) or any(t not in BYTES for t in types):
        return None
    return sum(math.prod(shape) * BYTES[t] for shape, t in zip(sizes, types, strict=True))


def _messages(material: Material) -> list[Event]:
    """Match the profiler's sends and receives with our notes of the calls: both in order."""
    noted: dict[str, list[tuple[int, Any]]] = {}
    for posted, message in material.messages:
        noted.setdefault(message.kind, []).append((posted, message))
    # a monitored barrier is made of messages of its own
    barriers = [(a, b) for a, b, _, number in material.waits if number == MONITORED]
    events = [Event("communication", "monitored_barrier", a, b) for a, b in barriers]
    for raw in material.raws:
        match = COMMUNICATION.match(raw.name)
        kind = MESSAGES.get(match[1]) if match and not raw.device else None
        if kind is None or any(a <= raw.start <= b for a, b in barriers):
            continue
        name = kind.replace("_any", "")
        if not noted.get(kind):
            events.append(Event("communication", name, raw.start, raw.stop))
            continue
        posted, message = noted[kind].pop(0)  # torch marks it when it may be under way already
        start = min(raw.start, posted)
        members = tuple(material.groups.get(message.group, ()))
        key: tuple[object, ...] = ()
        if kind != "recv_any":
            ends = (message.me, message.peer) if kind == "send" else (message.peer, message.me)
            key = ("message", message.group, members, *ends, message.tag, message.number)
            peer = members[message.peer] if members else message.peer
            name += f" {'to' if kind == 'send' else 'from'} rank {peer}"
        events.append(Event("communication", name, start, raw.stop, None, key, members))
    return events


# -- on a GPU -----------------------------------------------------------------------------------


def _kernels(material: Material, work: Sequence[Event]) -> list[Event]:
    """Return the work that ran on a GPU, none without one.

    A kernel belongs to the piece of work during which it was launched: a launch on the CPU and its
    kernel have the same correlation number. Copies are work too. Where the GPU had nothing of it to
    do for a while, what follows is marked as its continuation: one forward stays one.
    """
    starts = [e.start for e in work]
    launches = {
        r.correlation: r.start
        for r in material.raws
        if not r.device and r.correlation and LAUNCH.match(r.name)
    }
    found: list[Event] = []
    home: Event | None = None  # the piece of work of the kernel before
    begun: set[Event] = set()
    for raw in material.raws:
        launch = launches.get(raw.correlation) if raw.device else None
        if launch is None or NCCL_KERNEL.match(raw.name):
            continue
        inner = _around(work, starts, launch)
        if inner is None:
            continue
        if inner == home and raw.start - found[-1].stop < times.KERNEL_GAP_NANOSECONDS:
            found[-1] = found[-1]._replace(stop=max(found[-1].stop, raw.stop))
        else:
            name = inner.name + (CONTINUED if inner in begun else "")
            found.append(Event(inner.kind, name, raw.start, raw.stop))
        home = inner
        begun.add(inner)
    return found


def _kernel_talk(material: Material) -> list[Event]:
    """Return the communication that ran on a GPU: NCCL's kernels, numbered as they come."""
    found: list[Event] = []
    for raw in material.raws:
        if raw.device and (match := NCCL_KERNEL.match(raw.name)):
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", match[1].split("_")[0]).lower()
            key = ("kernel", len(found) + 1)
            found.append(Event("communication", name, raw.start, raw.stop, None, key))
    return found
