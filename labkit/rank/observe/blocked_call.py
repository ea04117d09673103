"""Tell what a blocked rank waits for, from the frames of its main thread."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import FrameType

import torch.distributed as dist

from ...wire.samples import GroupKey, Wait
from .. import tracebacks
from ..torch_internals import frames as torch_frames
from ..torch_internals import groups, names
from ..torch_internals.groups import Work
from . import flight_recorder, p2p_record


def describe(frame: FrameType | None) -> Wait | None:
    """Describe what the main thread waits for, None if it does not wait for another rank.

    Meaningful for a thread that does not run: see ``sampler``.
    """
    if frame is None or not names.is_on("deadlocks"):
        return None
    frames = list(_outwards(frame))
    what = _what(frames)
    if what is None:
        return None
    where, line = tracebacks.innermost(frame) or ("", "")
    return dataclasses.replace(what, call=_call(frames), where=where, line=line)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _what(frames: list[FrameType]) -> Wait | None:
    top = frames[0]
    if top.f_code is p2p_record.WAIT:
        return _work(frames)
    if top.f_code is p2p_record.MONITORED_BARRIER:
        timeout = top.f_locals.get("timeout")
        if _bounded(timeout):
            return None
        group = top.f_locals["self"]
        number = p2p_record.barriers.get(group, 0)
        return Wait("monitored_barrier", _option(group.group_name, number), number=number)
    maker = find_maker(top)
    if maker is not None:
        if not names.is_on("meetings"):
            return None
        if maker.f_code.co_name != "init_process_group":
            return Wait("new_group", number=groups.count_made())
        size = torch_frames.size_of(maker)
        if size < 1:
            size = int(os.environ.get("WORLD_SIZE", -1))
        return Wait("init", size=size)
    if torch_frames.is_blind(top):
        return _collective(flight_recorder.pending(), frames)
    return None


def _option(group: str, number: int) -> tuple[tuple[GroupKey, int], ...]:
    """Return the only thing that a wait can be for; nothing where the group is not known."""
    key = flight_recorder.keys().get(group)
    return () if key is None else ((key, number),)


def _collective(options: tuple[tuple[GroupKey, int], ...], frames: list[FrameType]) -> Wait | None:
    return Wait("collective", options, root=_root(frames)) if options else None


def find_maker(top: FrameType | None) -> FrameType | None:
    """Return the frame of the call that makes a group, if a thread waits there for the others."""
    if top is None or not torch_frames.is_meeting(top):
        return None
    return next(filter(torch_frames.is_maker, _outwards(top)), None)


def _work(frames: list[FrameType]) -> Wait | None:
    """Describe a wait for a Work: a message, or a collective of the recorder."""
    values = frames[0].f_locals
    if any(_bounded(t) for t in (*values["timeout"], *values["named"].values())):
        return None
    work = values["self"]
    message = p2p_record.messages.get(work)
    if message is not None:
        options = _option(message.group, message.number)
        members = options[0][0][1] if options else ()
        return Wait(
            message.kind,
            options,
            peer=members[message.peer] if members and message.peer >= 0 else message.peer,
            tag=message.tag,
            number=message.number,
            me=message.me,
        )
    return _collective(_options(work), frames)


def _options(work: Work) -> tuple[tuple[GroupKey, int], ...]:
    """Find which pending collectives a Work may stand for: one, as a rule."""
    home = p2p_record.homes.get(work)
    if home is None and not names.is_on("messages"):
        return ()  # it may be a message: those are not on record
    number = groups.operation(work)
    return flight_recorder.pending(number, home) or flight_recorder.pending(None, home)


def _bounded(timeout: object) -> bool:
    return isinstance(timeout, timedelta) and timedelta(0) < timeout <= p2p_record.BOUND


def _root(frames: list[FrameType]) -> int | None:
    """Find the source or destination of a rooted collective among the arguments of the call."""
    for frame in frames[1:4]:
        found = torch_frames.root_of(frame)
        if found is None:
            continue
        group, in_group, in_world = found
        if in_group is not None:  # resolved by then, whichever the caller gave
            return dist.get_global_rank(group or groups.default(), in_group)
        if in_world is not None:
            return in_world
    return None


def _call(frames: list[FrameType]) -> str:
    """Name the call as the learner wrote it: the outermost frame of torch above their code."""
    name = "wait"
    for frame in frames:
        ours = frame.f_code.co_filename == p2p_record.__file__
        if not ours and not torch_frames.is_torch(frame):
            break
        if frame.f_code.co_name not in torch_frames.PLUMBING:
            name = _qualified(frame)
    return name


def _qualified(frame: FrameType) -> str:
    name = frame.f_code.co_qualname
    if name.endswith(".__init__"):
        return name.removesuffix(".__init__")
    return name.rpartition(".")[2] if name.startswith(("Tensor.", "_")) else name


def other_threads_run_cells(main: int | None) -> bool:
    """Tell whether a thread that a cell started is in the cell's code: it may still provide
    what others wait for, so a rank with one is never called stuck."""
    for ident, frame in sys._current_frames().items():
        if ident != main and any(
            tracebacks.is_cell(f.f_code.co_filename) for f in _outwards(frame)
        ):
            return True
    return False
