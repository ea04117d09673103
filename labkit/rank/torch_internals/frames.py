"""Recognise frames of torch's Python: its files, its functions and the names inside them."""

from __future__ import annotations

import os
from datetime import timedelta
from types import FrameType

import torch
from torch.distributed import distributed_c10d as c10d

from ...guard import guarded
from ...guard import torch_internals as guard

TORCH = os.path.dirname(torch.__file__) + os.sep
C10D = c10d.__file__
#: Where torch waits in C++ for collectives that it issued itself: DDP, functional collectives.
BLIND_PRIVATE = (
    "_ops.py",
    "distributed/_functional_collectives.py",
    "distributed/_composable/",
)
BLIND = (
    *BLIND_PRIVATE,
    "autograd/graph.py",
    "autograd/__init__.py",
    "autograd/function.py",
    "nn/parallel/",
    "futures/",
    "distributed/distributed_c10d.py",
    "distributed/utils.py",
    "distributed/algorithms/",
    "distributed/fsdp/",
    "distributed/tensor/",
)
#: Where ranks meet to make a group, through the store.
MEETINGS = ("distributed/distributed_c10d.py", "distributed/rendezvous.py")
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
#: Arguments of ``init_process_group``, and of the functions that make a sub-group.
SIZE = "world_size"
RANK, METHOD, LIMIT = "rank", "init_method", "timeout"
ALONE, NAME = "use_local_synchronization", "group_name"
BARRIER = "_store_based_barrier"


def path(part: str) -> str:
    """Return where a file or folder of torch stands."""
    return TORCH + part.replace("/", os.sep)


_BLIND = tuple(map(path, BLIND))
_RPC = path("distributed/rpc/")
_DDP, _STREAMS = path("nn/parallel/distributed.py"), path("cuda/streams.py")
_HERE = os.path.dirname(__file__)
#: Ours too: it stands between ``init_process_group`` and torch's rendezvous.
_MEETINGS = (*map(path, MEETINGS), os.path.join(_HERE, "rendezvous.py"))
#: Ours, which pass on to torch's C++ what torch's Python calls.
_PASSING = (
    guard.__file__,
    guarded.__file__,
)


def skip(frame: FrameType | None) -> FrameType | None:
    """Return the frame that has called C++, as far as a thread is there by ways of ours."""
    while frame is not None and frame.f_code.co_filename in _PASSING:
        frame = frame.f_back
    return frame


def is_torch(frame: FrameType) -> bool:
    """Return whether a frame is of torch's Python."""
    return frame.f_code.co_filename.startswith(TORCH)


def is_blind(frame: FrameType) -> bool:
    """Return whether torch may wait there for collectives that it issued itself.

    Such a frame on top of the stack, in an idle process, is such a wait; but for a barrier that
    is none of the recorder's collectives.
    """
    code = frame.f_code
    return code.co_filename.startswith(_BLIND) and code.co_name != "monitored_barrier"


def spins(frame: FrameType) -> bool:
    """Return whether a thread that runs there, without leaving the line, waits for an event of
    CUDA: by itself, torch spins at one; DDP's logger does so before the next forward."""
    code = frame.f_code
    return code.co_filename == _DDP or (
        code.co_filename == _STREAMS and code.co_name == "synchronize"
    )


def is_meeting(frame: FrameType) -> bool:
    """Return whether ranks meet there to make a group."""
    return frame.f_code.co_filename in _MEETINGS


def is_maker(frame: FrameType) -> bool:
    """Return whether a frame is the call of a function that makes a group."""
    return frame.f_code.co_filename == C10D and frame.f_code.co_name in MAKERS


def size_of(maker: FrameType) -> int:
    """Return the world size that ``init_process_group`` was given, -1 if none."""
    size = maker.f_locals.get(SIZE, -1)
    return size if isinstance(size, int) else -1


def rank_of(maker: FrameType) -> int:
    """Return the rank that ``init_process_group`` was given, -1 if none."""
    rank = maker.f_locals.get(RANK, -1)
    return rank if isinstance(rank, int) else -1


def method_of(maker: FrameType) -> str:
    """Return the address that ``init_process_group`` was given, "" if none."""
    method = maker.f_locals.get(METHOD)
    return method if isinstance(method, str) else ""


def has_store(maker: FrameType) -> bool:
    """Return whether ``init_process_group`` was given a store of the caller's."""
    return maker.f_locals.get("store") is not None and not method_of(maker)


def limit_of(maker: FrameType, frames: list[FrameType], bound: timedelta) -> bool:
    """Return whether a call that makes a group gives up by itself before ``bound``."""
    for frame in frames:
        limit = frame.f_locals.get(LIMIT) if frame.f_code.co_filename == C10D else None
        if isinstance(limit, timedelta) and timedelta(0) < limit < bound:
            return True
        if frame is maker:
            break
    return False


def group_made(frames: list[FrameType]) -> tuple[str, list[int], bool]:
    """Return name and ranks (in the world) of the group that is being made, and whether it meets
    its members alone; "" and none where torch does not say."""
    for frame in frames:
        values = frame.f_locals
        if frame.f_code.co_filename == C10D and ALONE in values:
            name, ranks = values.get(NAME), values.get("ranks")
            alone = bool(values[ALONE])
            if isinstance(name, str) and isinstance(ranks, list):
                return name, ranks, alone
            return "", [], alone
    return "", [], False


def meets_all(frames: list[FrameType]) -> bool:
    """Return whether all ranks meet after a group was made (TORCH_DIST_INIT_BARRIER=1)."""
    codes = (frame.f_code for frame in frames)
    return any(code.co_filename == C10D and code.co_name == BARRIER for code in codes)


def is_distributed(frame: FrameType) -> bool:
    """Return whether a frame is of torch.distributed's own functions."""
    return frame.f_code.co_filename == C10D


def is_rpc(frame: FrameType) -> bool:
    """Return whether a frame is of torch's RPC."""
    return frame.f_code.co_filename.startswith(_RPC)


def is_rpc_start(frame: FrameType) -> bool:
    """Return whether ranks meet there to start RPC."""
    outer: FrameType | None = frame
    while outer is not None and is_rpc(outer):
        if outer.f_code.co_name == "init_rpc":
            return True
        outer = outer.f_back
    return False
