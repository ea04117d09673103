"""List what may issue calls on this rank beside its main thread.

What nobody can see into (a thread of the user's, a timer, an agent of RPC) is listed without a
wait: the proof takes it for something that may do anything.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Iterator

from ...wire import python_threads
from ...wire.samples import Issuer, Wait
from .. import activity, asyncio_internals, ipython_internals, os_threads, tracebacks
from ..torch_internals import rpc
from . import blocked_call, device_wait, flight_recorder, p2p_record

#: Sentences about an issuer; {rank} is filled in where they are told.
THREAD = "a thread of rank {{rank}} is alive: {}"
TASK = "a task of rank {{rank}}'s event loop is pending: {}"
TIMER = "a timer of rank {{rank}}'s event loop is pending: {}"
CALLBACK = "a function of rank {rank} waits for a future of a collective"
READER = "rank {{rank}}'s event loop calls a function when a file or a signal is ready: {}"
HANDLER = "rank {{rank}} has a handler for {}"
AGENT = "rank {rank} may be called by RPC"
CLIENT = "another notebook or client has used rank {rank}"
#: Asked once: Python makes 64 objects of an enumeration at each question.
SIGNALS = tuple(signal.valid_signals())


class Threads:
    """What other threads may issue, by two looks: one that waits has not run in between."""

    def __init__(self) -> None:
        self._clocks: dict[int, int] = {}
        self._found: list[tuple[int, Issuer]] = []

    def look(self) -> None:
        """Inspect every thread but the main one and those that labkit and ipykernel made."""
        main = threading.main_thread().ident
        assert main is not None
        before, self._clocks, self._found = self._clocks, {}, []
        for seen in python_threads.look({main, threading.get_ident()}):
            clock = self._clocks[seen.ident] = _clock(seen.ident)
            still = before.get(seen.ident) == clock
            self._found.append((clock, _issuer(seen) if still else _doubtful(seen)))

    def stamp(self) -> tuple[int, ...]:
        """Return numbers that change when a thread runs that waited for another rank."""
        return tuple(clock for clock, issuer in self._found if issuer.wait is not None)

    def issuers(self) -> list[Issuer]:
        """Return what the threads may issue."""
        return [issuer for _, issuer in self._found]

    def is_alone(self) -> bool:
        """Return whether there is no thread here that could end a wait of the main one."""
        return not self._found


def _doubtful(seen: python_threads.Seen) -> Issuer:
    return Issuer(THREAD.format(seen.name))


def _issuer(seen: python_threads.Seen) -> Issuer:
    """Describe a thread that has not run between two looks."""
    issuer, wait = _doubtful(seen), blocked_call.describe(seen.frame)
    if wait is None and blocked_call.is_known(seen.frame):
        return dataclasses.replace(issuer, ends=True)
    if wait is None and device_wait.is_pending() and _waits_for_lock(seen.ident):
        # In C, and nothing but the device is known to keep it: the main thread is judged alike.
        wait = device_wait.describe(seen.frame)
    return dataclasses.replace(issuer, wait=wait)


def _waits_for_lock(ident: int) -> bool:
    """Return whether a thread waits in C, without a time limit, for another one."""
    tasks = (t.native_id for t in threading.enumerate() if t.ident == ident)
    task = next(tasks, None)
    return task is not None and os_threads.waits_for_lock(task)


def _clock(ident: int) -> int:
    """Return the processor time of a thread, nanoseconds; that of now where there is none."""
    try:
        return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):  # macOS; a thread that has just ended
        return time.monotonic_ns()


def others() -> Iterator[Issuer]:
    """Yield what may issue calls beside threads: tasks, timers, handlers, futures, agents."""
    loop = activity.loop
    if loop is not None:
        for task in asyncio_internals.tasks_of_users(loop):
            yield Issuer(TASK.format(task), when_idle=True)
        for timer in asyncio_internals.timers_of_users(loop):
            yield Issuer(TIMER.format(timer), when_idle=True)
        for reader in asyncio_internals.readers_of_users(loop):
            yield Issuer(READER.format(reader), when_idle=True)
    for name in _handlers():
        yield Issuer(HANDLER.format(name), when_idle=True)
    yield from _callbacks()
    if rpc.is_called():
        yield Issuer(AGENT)
    if tracebacks.has_shell() and ipython_internals.is_shared(tracebacks.get_shell().kernel):
        yield Issuer(CLIENT, when_idle=True)


def _handlers() -> Iterator[str]:
    """Yield the signals for which the user has set a function."""
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if handler is signal.default_int_handler or not callable(handler):
            continue
        if python_threads.may_issue(handler):
            yield signal.Signals(number).name


def _callbacks() -> Iterator[Issuer]:
    p2p_record.forget_futures()
    for _, home, operation in list(p2p_record.futures):
        options = flight_recorder.pending(operation, home)
        yield Issuer(CALLBACK, Wait("collective", options) if options else None)
