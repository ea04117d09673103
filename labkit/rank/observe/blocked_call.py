"""Tell what a blocked rank waits for, from the frames of its main thread."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.distributed import distributed_c10d as c10d

from ...wire.protocol import FROM_ROOT, ROOTED
from ...wire.samples import GroupKey, Wait
from .. import tracebacks
from . import flight_recorder, p2p_record

TORCH = os.path.dirname(torch.__file__) + os.sep
C10D = c10d.__file__
#: Where torch waits in C++ for collectives that it issued itself: DDP, functional collectives.
#: A frame of one of these on top of the stack, in an idle process, is such a wait.
BLIND = tuple(
    TORCH + path.replace("/", os.sep)
    for path in (
        "autograd/graph.py",
        "autograd/__init__.py",
        "autograd/function.py",
        "nn/parallel/",
        "futures/",
        "_ops.py",
        "distributed/distributed_c10d.py",
        "distributed/utils.py",
        "distributed/_functional_collectives.py",
        "distributed/algorithms/",
        "distributed/fsdp/",
        "distributed/_composable/",
        "distributed/tensor/",
    )
)
#: Where ranks meet to make a group, through the store.
MEETINGS = (C10D, TORCH + os.path.join("distributed", "rendezvous.py"))
#: Functions of torch.distributed that make a group: every rank has to come.
MAKERS = (
    "init_process_group",
    "new_group",
    "split_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
)
#: Frames that a reader does not take for the call: decorators and torch's own plumbing.
PLUMBING = (
    "wrapper",
    "decorate_context",
    "_wrapped_call_impl",
    "_call_impl",
    "__call__",
    "__torch_dispatch__",
    "trigger_wait",
    "wait_tensor",
    "wait",
)


def describe(frame: FrameType | None) -> Wait | None:
    """Describe what the main thread waits for, None if it does not wait for another rank.

    Meaningful for a thread that does not run: see ``sampler``.
    """
    if frame is None:
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
        if maker.f_code.co_name != "init_process_group":
            return Wait("new_group", number=c10d._world.group_count)
        size = maker.f_locals.get("world_size", -1)
        if not isinstance(size, int) or size < 1:
            size = int(os.environ.get("WORLD_SIZE", -1))
        return Wait("init", size=size)
    if top.f_code.co_filename.startswith(BLIND):
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
    if top is None or top.f_code.co_filename not in MEETINGS:
        return None
    for frame in _outwards(top):
        if frame.f_code.co_filename == C10D and frame.f_code.co_name in MAKERS:
            return frame
    return None


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
    try:
        number = work._get_sequence_number()
    except (AttributeError, RuntimeError):  # of an older torch; reduce_scatter's has none
        number = None
    return flight_recorder.pending(number, home) or flight_recorder.pending(None, home)


def _bounded(timeout: object) -> bool:
    return isinstance(timeout, timedelta) and timedelta(0) < timeout <= p2p_record.BOUND


def _root(frames: list[FrameType]) -> int | None:
    """Find the source or destination of a rooted collective among the arguments of the call."""
    for frame in frames[1:4]:
        code = frame.f_code
        if code.co_filename != C10D or code.co_name not in ROOTED:
            continue
        values = frame.f_locals
        end = "src" if code.co_name in FROM_ROOT else "dst"
        in_group, in_world = values.get(f"group_{end}"), values.get(end)
        if isinstance(in_group, int):  # resolved by then, whichever the caller gave
            group = values.get("group") or c10d._get_default_group()
            return dist.get_global_rank(group, in_group)
        if isinstance(in_world, int):
            return in_world
    return None


def _call(frames: list[FrameType]) -> str:
    """Name the call as the learner wrote it: the outermost frame of torch above their code."""
    name = "wait"
    for frame in frames:
        filename = frame.f_code.co_filename
        if filename != p2p_record.__file__ and not filename.startswith(TORCH):
            break
        if frame.f_code.co_name not in PLUMBING:
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
