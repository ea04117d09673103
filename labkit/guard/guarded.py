"""Start threads whose connections the guard accepts, from processes of this user only.

``server`` says what this is and why. A filter of seccomp belongs to the thread
that lays it upon itself and to those that this one starts: what listens is made in a thread that
lives only for that, and the rank's other threads (cells, subprocesses, a learner's own servers)
know of no filter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

Result = TypeVar("Result")


class _Machine(NamedTuple):
    """Numbers of Linux that differ between machines."""

    audit: int  #: of the architecture (linux/audit.h)
    seccomp: int
    accept: int
    accept4: int


#: Environment variable of a rank: the number of the socket where it registers, and the server's
#: process.
ENV = "LABKIT_GUARD"
#: A registration: the rank's process, the number of a file there, which the server tries to have
#: as well, and the number of the system call accept4. The files sent with it: the notifications
#: of the thread's filter, the process, a pipe for the answer.
REGISTRATION = struct.Struct("=iii")
#: The answers: its connections are looked at from now on; this system does not let the server.
WELCOME, REFUSED = b"+", b"-"

_MACHINES = {
    "x86_64": _Machine(0xC000003E, 317, 43, 288),
    "aarch64": _Machine(0xC00000B7, 277, 202, 242),
}
_PR_SET_NO_NEW_PRIVS, _PR_SET_PTRACER = 38, 0x59616D61
_SET_FILTER, _NEW_LISTENER, _SPEC_ALLOW = 1, 1 << 3, 1 << 2
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
#: Of the filter's language (linux/filter.h): load a word, jump if equal, return.
_LOAD, _JUMP, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  #: where these words are

_libc = ctypes.CDLL(None, use_errno=True)
_line: socket.socket | None = None
_guard = -1
_owner = -1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class GuardEnded(RuntimeError):
    """The guard has ended, or takes nobody more."""

    def __init__(self) -> None:
        super().__init__(
            "The process that accepts connections for the ranks has ended, or may open no more "
            "files, so they cannot form a group; lab.stop(), then labkit.start() gives you a new "
            "lab."
        )


class _Refused(Exception):
    """This system has no guard for connections; the reason."""


def install() -> None:
    """Learn from the environment where the guard is, and take it out of there."""
    global _line, _guard, _owner
    if found := os.environ.pop(ENV, ""):
        number, pid = map(int, found.split(","))
        _line, _guard, _owner = socket.socket(fileno=number), pid, os.getpid()


def is_there() -> bool:
    """Return whether this process can have a guard; one that a cell has forked has none."""
    return _line is not None and _owner == os.getpid()


def open_reason() -> str:
    """Return why connections of strangers are accepted here, "" if they are not."""
    if not is_there():
        return "labkit starts no guard for connections here"
    job = _run(lambda: None)
    return job.refusal


def call(function: Callable[[], Result]) -> Result:
    """Call a function in a thread of its own, so that what it starts is guarded.

    Where the system has no guard, the function is called all the same. An interrupt waits until
    the function has returned, as it does for what torch runs in C++.

    Raises
    ------
    GuardEnded
        If there was a guard, and its process has ended or takes nobody more.
    """
    if not is_there():
        return function()
    job = _run(function)
    if job.refusal:
        return function()
    if job.error is not None:
        raise job.error
    return cast(Result, job.value)


def _run(function: Callable[[], Any]) -> _Job:
    job = _Job(function)
    threading.Thread(target=job.run, name="labkit listener", daemon=True).start()
    interrupt = None
    while not job.over:  # an interrupt may come when the lock has been taken already
        try:
            job.done.acquire()
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return job


class _Job:
    """A function that a guarded thread calls; when it has returned, ``done`` is free."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.value: Any = None
        self.error: BaseException | None = None
        self.refusal = ""  #: why there is no guard; the function was not called then
        self.over = False
        self.done = threading.Lock()
        self.done.acquire()

    def run(self) -> None:
        try:
            _register()
            self.value = self.function()
        except _Refused as error:
            self.refusal = str(error)
        except BaseException as error:
            self.error = error
        finally:
            self.over = True
            self.done.release()


def _register() -> None:
    """Make the guard answer this thread's calls of accept, and those of threads that it starts."""
    assert _line is not None
    machine = _MACHINES.get(platform.machine())
    if machine is None or not hasattr(os, "pidfd_open"):
        raise _Refused(f"it is not known how on {platform.machine()}")
    _libc.prctl(_PR_SET_PTRACER, _guard, 0, 0, 0)  # let it have our listening sockets
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # of this thread: the condition for a filter
    notifications = _lay_filter(machine)
    process = os.pidfd_open(os.getpid())
    answer, theirs = os.pipe()
    files = [notifications, process, theirs]
    try:
        with contextlib.suppress(OSError):  # nobody is there: no answer comes either
            message = REGISTRATION.pack(os.getpid(), answer, machine.accept4)
            socket.send_fds(_line, [message], files)
        while files:
            os.close(files.pop())
        found = os.read(answer, 1)
    finally:
        for file in (answer, *files):
            os.close(file)
    if not found:
        raise GuardEnded
    if found == REFUSED:
        raise _Refused("this system lets no process have the sockets of another")


def _lay_filter(machine: _Machine) -> int:
    """Lay a filter on this thread, forever; return the file with its notifications."""
    steps = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP, 0, 3, machine.audit),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP, 2, 0, machine.accept),
        (_JUMP, 1, 0, machine.accept4),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOTIFY),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(code))
    # SPEC_ALLOW: before Linux 5.16 a filter switched a processor's speculation off as well.
    flags = _NEW_LISTENER | _SPEC_ALLOW
    found = _libc.syscall(machine.seccomp, _SET_FILTER, flags, ctypes.byref(program))
    if found < 0:
        number = ctypes.get_errno()
        raise _Refused(f"this system has no filter of seccomp for it ({os.strerror(number)})")
    return int(found)
