"""Know what this rank has given to its GPU, and wait until the GPU has done it.

A call on a GPU returns before its work is done, a collective of NCCL too. So that a cell ends
when its work has ended, :func:`finish` runs at the end of every cell and of every function of the
notebook: an error of the GPU, and a collective to which a rank does not come, show in the cell
that caused them, as they do with gloo.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Sequence
from types import CodeType

import torch

from ...base import times
from ...wire.samples import GroupKey
from .. import memory
from ..torch_internals import groups
from . import flight_recorder
from .p2p_record import Message

log = logging.getLogger("labkit")

#: Flag of CUDA's driver: a thread that waits for the device sleeps instead of spinning.
CU_CTX_SCHED_BLOCKING_SYNC = 0x04


class Cuda:
    """The GPU of this rank: its current stream, and what NCCL runs beside it.

    It takes calls and returns at once.
    """

    def __init__(self) -> None:
        self._event: torch.cuda.Event | None = None

    def is_used(self) -> bool:
        """Return whether this rank has a GPU and has used it: all else is only asked if so."""
        return memory.device.type == "cuda" and torch.cuda.is_initialized()

    def mark(self) -> None:
        """Take note of all that was given to it so far: an event at the end of the stream."""
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(memory.device))

    def is_done(self) -> bool:
        """Return, without waiting, whether it has done all up to the last mark, and NCCL its part.

        Raises
        ------
        RuntimeError
            If something of it has failed.
        """
        if self._event is not None and not self._event.query():
            return False
        self._event = None
        for group in groups.groups():
            if failure := groups.failure(groups.nccl(group)):
                raise RuntimeError(f"NCCL has aborted group {group.group_name}: {failure}")
        return not flight_recorder.list_queued()

    def held(self) -> int:
        """Return the number of what NCCL cannot begin with, 0 if there is none: at a group's first
        call it connects with the others, and this rank spins there until they come."""
        return flight_recorder.held()

    def progress(self) -> tuple[int, ...]:
        """Return numbers that stay the same as long as NCCL finishes nothing, and one call holds
        this rank."""
        return flight_recorder.progress()

    def collectives(self) -> Sequence[tuple[GroupKey, int]]:
        """List NCCL's collectives that have not finished, as (group, number), oldest first."""
        return flight_recorder.queued_collectives()

    def messages(self) -> Sequence[Message]:
        """List NCCL's sends and receives that have not finished, oldest first."""
        return flight_recorder.queued_messages()


#: The device of this rank. Tests put something else here that has NCCL's semantics.
queue = Cuda()


def uses_device() -> bool:
    """Return whether calls of this rank return before their work is done."""
    return queue.is_used()


def pending() -> tuple[tuple[GroupKey, int], ...]:
    """List the collectives that were given to the device and that it has not finished."""
    return tuple(queue.collectives()) if queue.is_used() else ()


def held() -> int:
    """Return the number of what this rank is giving to the device in a call that has not returned
    for a while; 0 if there is none."""
    return queue.held() if queue.is_used() else 0


def progress() -> tuple[int, ...]:
    """Return numbers that stay the same as long as the device finishes nothing, and one call holds
    this rank; none without a device."""
    return queue.progress() if queue.is_used() else ()


def pending_messages() -> tuple[Message, ...]:
    """List the sends and receives that were given to the device and that it has not finished."""
    return tuple(queue.messages()) if queue.is_used() else ()


def finish() -> None:
    """Wait until the device has done all that this rank has given to it; nothing without one.

    Raises
    ------
    RuntimeError
        What the device says of something that has failed.
    KeyboardInterrupt
        If somebody interrupts the wait.
    """
    if not queue.is_used():
        return
    queue.mark()
    wait()


def wait() -> None:
    """Inspect the device again and again, and sleep in between: the interpreter is free.

    However long a look takes, the pauses are longer: who looks at this thread takes it for one
    that waits (``times.POLLING_NANOSECONDS``).
    """
    pause = times.DEVICE_LOOK
    began = time.thread_time()
    while not queue.is_done():
        took = time.thread_time() - began
        time.sleep(max(pause, times.DEVICE_LOOK_SHARE * took))
        pause = min(2 * pause, times.DEVICE_LOOK_LONGEST)
        began = time.thread_time()


#: The code of the function that waits: a frame with it is a rank that waits for its device.
WAIT: CodeType = wait.__code__


def use_blocking_sync(device: torch.device) -> None:
    """Make this process sleep where it waits for a GPU, as in ``tensor.item()``.

    By itself CUDA spins there, on a processor that other ranks need. It counts for a context that
    is made afterwards, and is harmless where CUDA's driver is not there.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        handle = ctypes.c_int()
        for code in (
            cuda.cuInit(0),
            cuda.cuDeviceGet(ctypes.byref(handle), device.index or 0),
            cuda.cuDevicePrimaryCtxSetFlags_v2(handle, CU_CTX_SCHED_BLOCKING_SYNC),
        ):
            if code:
                log.debug("%s: CUDA's driver refuses to sleep while it waits (%d)", device, code)
                return
    except (OSError, AttributeError) as error:
        log.debug("%s: no way to sleep while it waits (%s)", device, error)
        return
    log.debug("%s: this process sleeps where it waits for it", device)
