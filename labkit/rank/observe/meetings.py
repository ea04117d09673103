"""Describe what a rank brings to a meeting, in which ranks make a group."""

from __future__ import annotations

import os
from datetime import timedelta
from types import FrameType

from ... import times, variables
from ...wire.samples import GroupKey, Wait
from ..torch_internals import frames as torch_frames
from ..torch_internals import groups
from . import flight_recorder


def describe(maker: FrameType, frames: list[FrameType]) -> Wait | None:
    """Describe a wait in ``maker``, the call of ``init_process_group`` or of one that makes a
    sub-group; None if it has a short time limit."""
    if torch_frames.limit_of(maker, frames, timedelta(seconds=times.WATCHED_LIMIT)):
        return None
    if maker.f_code.co_name == "init_process_group":
        return _init(maker)
    return _new_group(frames)


def _init(maker: FrameType) -> Wait:
    size, rank = torch_frames.size_of(maker), torch_frames.rank_of(maker)
    method = torch_frames.method_of(maker)
    if size < 1 and (given := variables.place("WORLD_SIZE")) is not None:
        size = given
    if rank < 0 and (given := variables.place("RANK")) is not None:
        rank = given
    if method in ("", "env://"):
        address = ":".join(os.environ.get(f"MASTER_{part}", "") for part in ("ADDR", "PORT"))
        method = f"tcp://{address}" if address != ":" and not torch_frames.has_store(maker) else ""
    return Wait("init", size=size, me=rank, at=method.replace("localhost", "127.0.0.1"))


def _new_group(frames: list[FrameType]) -> Wait | None:
    name, ranks, alone = torch_frames.group_made(frames)
    world = flight_recorder.keys().get(groups.default().group_name)
    making: GroupKey | None = (name, tuple(ranks)) if name and ranks else None
    if torch_frames.meets_all(frames) and not alone:
        making = None
    if alone and making is not None:
        return Wait("new_group", ((making, 0),), number=-1, making=making)
    if world is None:
        return None
    return Wait("new_group", ((world, 0),), number=groups.count_made(), making=making)
