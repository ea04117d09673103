"""Tell what a blocked thread waits for, from its frames."""

from __future__ import annotations

import dataclasses
import os
import sys
from datetime import timedelta
from types import FrameType

from ...base import times, variables
from ...wire import python_threads
from ...wire.samples import GroupKey, Wait
from .. import tracebacks
from ..torch_internals import call_names, connecting, groups, names, reducers, rendezvous
from ..torch_internals import frames as torch_frames
from ..torch_internals.groups import ProcessGroup, Work
from . import call_details, flight_recorder, p2p_record, store_waits, unseen_calls


def describe(frame: FrameType | None) -> Wait | None:
    """Describe what a thread waits for, None if it does not wait for another rank.

    Meaningful for a thread that does not run: see ``sampler``.
    """
    frame = torch_frames.skip(frame)
    if frame is None:
        return None
    frames = list(python_threads.frames(connecting.behind(frame)))
    what = _what(frames)
    if what is None:
        return None
    where, line = tracebacks.innermost(frame) or ("", "")
    # Within one cell the line of the wait says enough.
    issued = what.issued if what.issued.partition(",")[0] != where.partition(",")[0] else ""
    return dataclasses.replace(what, call=_call(frames), where=where, line=line, issued=issued)


def _what(frames: list[FrameType]) -> Wait | None:
    top = frames[0]
    if top.f_code is p2p_record.WAIT:
        return _work(frames)
    if top.f_code is p2p_record.MONITORED_BARRIER:
        return _monitored_barrier(top)
    maker = find_meeting(top)
    if maker is not None and names.is_on("meetings"):
        return _meeting(maker, frames)
    if store_waits.is_wait(top):
        return _store(top)
    if torch_frames.is_rpc(top):
        return _unknown("an answer to a remote call may still come")
    if torch_frames.is_blind(top):
        found = _collective(_of_no_other_thread(flight_recorder.pending(), frames))
        if found is None and torch_frames.is_distributed(top):
            return _unknown(_unknown_reason())
        return found
    return _parked(frames)


def _unknown(doubt: str) -> Wait:
    return Wait("unknown", doubt=doubt)


def _unknown_reason() -> str:
    """Return why a wait inside torch.distributed is not understood."""
    hidden = names.hidden_waits()
    return hidden or "labkit cannot see what rank {rank} waits for"


def _monitored_barrier(top: FrameType) -> Wait | None:
    group = top.f_locals["self"]
    if bounded(top.f_locals.get("timeout")) or gives_up(group):
        return None
    number = p2p_record.barriers.get(group, 0)
    options = _option(group.group_name, number)
    if not options:
        return _unknown(UNKNOWN_GROUP)
    return Wait("monitored_barrier", options, number=number)


def _meeting(maker: FrameType, frames: list[FrameType]) -> Wait | None:
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


def _store(top: FrameType) -> Wait | None:
    if bounded(store_waits.limit_of(top)):
        return None
    if store_waits.opens(top):
        return _unknown("any process may come to the store, or open it, that rank {rank} waits for")
    keys = ", ".join(repr(key) for key in store_waits.keys_of(top))
    return Wait("store", at=keys, doubt="any process that reaches the store may set the key")


def _parked(frames: list[FrameType]) -> Wait | None:
    """Describe a wait for another thread of this rank, unless it has a time limit."""
    return Wait("thread") if python_threads.is_parked(frames[0]) else None


def _option(group: str, number: int) -> tuple[tuple[GroupKey, int], ...]:
    """Return the only thing that a wait can be for; nothing where the group is not known."""
    key = flight_recorder.keys().get(group)
    return () if key is None else ((key, number),)


def _collective(options: tuple[tuple[GroupKey, int], ...]) -> Wait | None:
    if not options:
        return None
    known = {str(group.group_name): group for group in groups.members()}
    homes = [flight_recorder.home_of(key[0]) for key, _ in options]
    if all(gives_up(known[home]) for home in homes if home in known):
        return None
    return Wait("collective", options)


def _of_no_other_thread(
    options: tuple[tuple[GroupKey, int], ...], frames: list[FrameType]
) -> tuple[tuple[GroupKey, int], ...]:
    """Leave out the collectives that other threads of this rank wait for."""
    theirs: set[tuple[GroupKey, int]] = set()
    for top in sys._current_frames().values():
        frame = torch_frames.skip(top)
        if frame is None or frame.f_code is not p2p_record.WAIT or frame in frames:
            continue
        work = frame.f_locals["self"]
        if groups.operation(work) is not None:  # else any that is pending may be its own
            theirs.update(_options(work))
    return tuple(option for option in options if option not in theirs)


def is_known(frame: FrameType) -> bool:
    """Return whether a thread is in a call whose wait would be described if nothing ended it: one
    that is not has a time limit, or is over."""
    code = frame.f_code
    known = code in (p2p_record.WAIT, p2p_record.MONITORED_BARRIER) or store_waits.is_wait(frame)
    return known or find_meeting(frame) is not None


def find_meeting(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the call that makes a group, also behind a wait of ours."""
    if frame is None:
        return None
    return find_maker(frame.f_back if store_waits.is_wait(frame) else connecting.behind(frame))


def find_maker(top: FrameType | None) -> FrameType | None:
    """Return the frame of the call that makes a group, if a thread waits there for the others."""
    if top is None or not torch_frames.is_meeting(top):
        return None
    return next(filter(torch_frames.is_maker, python_threads.frames(top)), None)


def _work(frames: list[FrameType]) -> Wait | None:
    """Describe a wait for a Work: a message, or a collective of the recorder."""
    values = frames[0].f_locals
    if any(bounded(t) for t in (*values["timeout"], *values["named"].values())):
        return None
    work = values["self"]
    issued = call_details.describe(call_details.origins.get(work))[0]
    message = p2p_record.messages.get(work)
    if message is not None:
        options = _option(message.group, message.number)
        if not options:
            return _unknown(UNKNOWN_GROUP)
        if any(gives_up(g) for g in groups.members() if g.group_name == message.group):
            return None
        members = options[0][0][1]
        return Wait(
            message.kind,
            options,
            peer=members[message.peer] if message.peer >= 0 else message.peer,
            tag=message.tag,
            number=message.number,
            me=message.me,
            issued=issued,
        )
    options = _options(work)
    if not options:
        return _unobserved(work, issued)
    found, root = _collective(options), call_details.roots.get(work)
    known = None if root is None else options[0][0][1][root]
    return found and dataclasses.replace(found, issued=issued, root=known)


#: Of a group that is in none of torch's lists.
UNKNOWN_GROUP = "rank {rank} waits in a group that was made by hand, whose members labkit lacks"


def _options(work: Work) -> tuple[tuple[GroupKey, int], ...]:
    """Find which pending collectives a Work may stand for: one, as a rule."""
    home = p2p_record.homes.get(work)
    if home is None:
        return ()  # a message, or of a group made by hand: those are not on record
    number = groups.operation(work)
    return flight_recorder.pending(number, home) or flight_recorder.pending(None, home)


def _unobserved(work: Work, issued: str) -> Wait | None:
    """Describe a wait for a Work that is not on record: by counting, where its group is known."""
    home = p2p_record.homes.get(work)
    if flight_recorder.is_recording():
        if home is not None:  # done by now
            return None
        return dataclasses.replace(_unknown(_unknown_reason()), issued=issued)
    doubt = names.hidden_waits()
    last = flight_recorder.last_of(home) if home is not None else 0
    options = _option(home or "", last)
    if not options:
        return dataclasses.replace(_unknown(doubt), issued=issued)
    return Wait("collective", options, issued=issued, doubt=doubt)


def bounded(timeout: object) -> bool:
    return isinstance(timeout, timedelta) and timedelta(0) < timeout < timedelta(
        seconds=times.WATCHED_LIMIT
    )


def gives_up(group: ProcessGroup) -> bool:
    """Return whether waits in a group end by themselves before long."""
    return bounded(groups.limit(group))


def name_and_root(frame: FrameType) -> tuple[str, int | None]:
    """Return the name of the call that a thread is in, and the root that it gives, if any."""
    frames = list(python_threads.frames(frame))
    return _call(frames), next(filter(None.__ne__, map(p2p_record.root_given, frames[:4])), None)


#: Files of labkit's that stand between torch's Python and its C++.
_OURS = (p2p_record.__file__, store_waits.__file__, rendezvous.__file__, unseen_calls.__file__)


def _call(frames: list[FrameType]) -> str:
    return call_names.name_call(frames, _OURS, reducing=bool(reducers.models()))
