"""Describe a rank that waits for its GPU: at the end of a cell, or where it looks at a value."""

from __future__ import annotations

from types import FrameType

from ...wire import python_threads
from ...wire.samples import Message, Wait
from .. import tracebacks
from ..torch_internals import frames as torch_frames
from ..torch_internals import groups
from . import blocked_call, call_details, device, flight_recorder, p2p_record, unseen_calls
from .p2p_record import Message as Noted


def is_wait(frame: FrameType | None) -> bool:
    """Return whether a thread waits for all that was given to the device: the end of a cell."""
    return any(f.f_code is device.WAIT for f in python_threads.frames(frame))


def is_pending() -> bool:
    """Return whether the device has collectives or messages that it has not finished."""
    return bool(device.pending() or device.pending_messages())


def holds(frame: FrameType | None) -> bool:
    """Return whether something that was given to the device holds a thread in C, where it spins:
    in a call with which NCCL cannot begin, or in one that waits for an event of CUDA."""
    if frame is None or not device.uses_device():
        return False
    return (in_torch(frame) and device.held() > 0) or (torch_frames.spins(frame) and is_pending())


def in_torch(frame: FrameType) -> bool:
    """Return whether a thread may be in torch's C++ for a call to the other ranks."""
    ours = frame.f_code.co_filename == p2p_record.__file__  # it passes on what is called
    return ours or torch_frames.is_blind(frame)


def describe(frame: FrameType | None = None) -> Wait | None:
    """Describe what the device waits for, None if it waits for no other rank.

    ``frame`` is where a thread stands within its cell, None at the end of one. Within, nobody sees
    which of it the thread waits for; the message names the line there, and the one of the oldest
    call.
    """
    brief = {str(g.group_name) for g in groups.members() if blocked_call.gives_up(g)}
    given = device.pending()
    options = tuple((key, number) for key, number in given if key[0] not in brief)
    if frame is not None and len(options) < len(given):
        return None  # it may wait for a call that ends when its time is up
    messages = tuple(filter(None, map(_message, device.pending_messages())))
    if not (options or messages):
        return None
    call, issued, line = _oldest(options, messages)
    where, root = issued, None
    if frame is not None:
        where, line = tracebacks.innermost(frame) or ("", "")
        if device.held():  # the thread is in the very call, of which nothing is noted yet
            issued = where
            call, root = blocked_call.name_and_root(frame)
    return Wait(
        "device",
        options,
        root=root,
        call=call,
        where=where,
        line=line,
        messages=messages,
        partial=frame is not None,
        issued=issued if issued != where else "",
    )


def _message(noted: Noted) -> Message | None:
    key = flight_recorder.keys().get(noted.group)
    if key is None:
        return None
    peer = key[1][noted.peer] if noted.peer >= 0 else -1
    return Message(noted.kind, key, noted.number, peer, noted.tag)


def _oldest(
    options: tuple[tuple[tuple[str, tuple[int, ...]], int], ...], messages: tuple[Message, ...]
) -> tuple[str, str, str]:
    """Return the call of the oldest thing that is pending, place and text of it.

    The name of the call is "" where the thing itself has it.
    """
    for group in groups.members():
        for (name, _), number in options[:1]:
            if group.group_name == name:
                entries = (e for e in flight_recorder.entries() if e.group == name)
                entry = next((e for e in entries if e.number == number), None)
                call = (call_details.calls.get(group) or {}).get(
                    (entry.backend, entry.own) if entry else ("", -1)
                )
                if call is None and entry is not None:  # issued in C++
                    unseen = unseen_calls.find(entry.created)
                    if unseen is not None:
                        return unseen.name, *call_details.describe(unseen.place)
                return "", *call_details.describe(call.place if call else None)
        for message in messages[:1]:
            if group.group_name == message.group[0]:
                ranks = message.group[1]
                peer = ranks.index(message.peer) if message.peer >= 0 else -1
                end = (message.kind, peer, message.tag, message.number)
                noted = (call_details.sizes.get(group) or {}).get(end)
                return "", *call_details.describe(noted[2] if noted else None)
    return "", "", ""
