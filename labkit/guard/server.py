"""Accept connections for the ranks, from processes of the same user only.

TCP has no password, and neither have torch's store, gloo and RPC: whoever connects to a port that
one of them listens at takes part. On a machine that people share, that may be anybody. So what
listens for a rank runs in threads whose ``accept`` is answered here (``guarded`` makes them): this
process accepts the connection, looks whose process is at the other end (``peers``), closes that
of a stranger before anybody has read a byte of it, and hands any other to the rank. README.md
says by which means, and what was tried before it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from ..base import times
from . import peers
from .guarded import ENV, REFUSED, REGISTRATION, WELCOME

#: linux/seccomp.h: a notification has an id, a thread, flags; number, architecture, instruction
#: and six arguments of the system call.
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RECEIVE, _SEND, _ADD_FILE = 0xC0502100, 0xC0182101, 0x40182103
#: Id, value, error, flags.
_RESPONSE = struct.Struct("=Qqii")
#: Id, flags, the file here, its number there (0: any), flags for it.
_ADDED = struct.Struct("=QIIII")
_ADD_AND_SEND = 2
ADDRESS_SIZE = struct.Struct("=I")
#: Strangers that are refused in one go, while the next call of another rank may wait.
AT_ONCE = 100
#: What says that no further file can be opened.
NO_ROOM = (errno.EMFILE, errno.ENFILE)
#: The same number everywhere.
_PIDFD_GETFD = 438
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def start() -> int | None:
    """Start the guard in a process of its own; return its number, None where there is none.

    The variable ``ENV`` says to ranks, which are forked from here, how to reach it. Call it while
    this process has one thread. The guard ends with this process.
    """
    if sys.platform != "linux":
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it ended before the line above
                return None
            os.setsid()
            _keep_only(theirs.fileno())
            _allow_many_files()
            _Server(theirs).serve()
            code = 0
        finally:
            os._exit(code)
    theirs.close()
    os.environ[ENV] = f"{ours.detach()},{pid}"
    return pid


def _keep_only(kept: int) -> None:
    """Close what was inherited: that others have closed theirs shall show."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number > 2 and number != kept:
            with contextlib.suppress(OSError):  # of the list itself
                os.close(number)


def _allow_many_files() -> None:
    """Take all the files that the system allows: each process group of each rank needs two, and
    1024, the usual limit, are soon used up.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # it goes on with what it has
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Rank(NamedTuple):
    """A registration."""

    pid: int
    process: int  #: a pidfd
    accept4: int  #: the number of this system call


class _Call(NamedTuple):
    """A call of accept that waits for its answer."""

    id: int
    number: int  #: of the listening socket, in the rank
    address: int  #: where the rank wants the address of the other end, 0 if nowhere
    size: int  #: and where its size
    flags: int


class _Server:
    """Answer the ranks' calls of accept."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.ranks: dict[int, _Rank] = {}  #: by the file of its notifications
        #: Calls with a listening socket that blocks, by our own file for that socket.
        self.waiting: dict[int, tuple[int, _Call]] = {}
        #: Calls for which there was no room, with the file of their notifications.
        self.put_off: list[tuple[int, _Call]] = []
        self.poll = select.poll()
        self.poll.register(line, select.POLLIN)

    def serve(self) -> None:
        while True:
            for file, events in self.poll.poll(1000 * times.NO_ROOM_LOOK if self.put_off else None):
                if file == self.line.fileno():
                    if not self._register():
                        return
                elif file in self.waiting:
                    notifications, call = self.waiting.pop(file)
                    self.poll.unregister(file)
                    self._answer(notifications, call, file)
                elif events & select.POLLIN:
                    self._receive(file)
                else:  # every thread under that filter has ended
                    self._forget(file)
            again, self.put_off = self.put_off, []
            for notifications, call in again:
                self._begin(notifications, call)

    def _register(self) -> bool:
        """Record a new rank's thread; False if there will be none any more."""
        message, files, _, _ = socket.recv_fds(self.line, REGISTRATION.size, 3)
        if not message:
            return False
        if len(files) < 3:  # no room for them; who has asked sees that nobody answers
            for file in files:
                os.close(file)
            return True
        pid, number, accept4 = REGISTRATION.unpack(message)
        notifications, process, answer = files
        try:
            os.close(_get_file(process, number))
        except OSError:
            with contextlib.suppress(OSError):
                os.write(answer, REFUSED)
            os.close(notifications)
            os.close(process)
        else:
            self.ranks[notifications] = _Rank(pid, process, accept4)
            self.poll.register(notifications, select.POLLIN)
            with contextlib.suppress(OSError):
                os.write(answer, WELCOME)
        os.close(answer)
        return True

    def _forget(self, notifications: int) -> None:
        self.poll.unregister(notifications)
        os.close(notifications)
        os.close(self.ranks.pop(notifications).process)
        self.put_off = [(of, call) for of, call in self.put_off if of != notifications]
        for file in [f for f, (of, _) in self.waiting.items() if of == notifications]:
            del self.waiting[file]
            self.poll.unregister(file)
            os.close(file)

    def _receive(self, notifications: int) -> None:
        """Take a call and answer it."""
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(notifications, _RECEIVE, buffer)
        except OSError:  # it was interrupted in the meantime
            return
        id_, _, _, made, _, _, number, address, size, flags, _, _ = _NOTIFICATION.unpack(buffer)
        has_flags = made == self.ranks[notifications].accept4
        call = _Call(id_, number, address, size, flags if has_flags else 0)
        self._begin(notifications, call)

    def _begin(self, notifications: int, call: _Call) -> None:
        """Get the listening socket of a call and answer it."""
        try:
            listening = _get_file(self.ranks[notifications].process, call.number)
        except OSError as error:
            if error.errno in NO_ROOM:
                self.put_off.append((notifications, call))
            else:
                _respond(notifications, call, error.errno or errno.EBADF)
        else:
            self._answer(notifications, call, listening)

    def _answer(self, notifications: int, call: _Call, listening: int) -> None:
        """Accept a connection for a rank; close ``listening``, unless it has to be waited for."""
        keep = False
        try:
            for _ in range(AT_ONCE):
                if not _is_ready(listening):
                    break
                with _accept(listening, call.flags) as (connection, address):
                    if not peers.is_own(connection):
                        continue
                    if call.address:
                        _write_address(self.ranks[notifications].pid, call, address)
                    _hand_over(notifications, call, connection.fileno())
                    return
            if os.get_blocking(listening):
                self.waiting[listening] = (notifications, call)
                self.poll.register(listening, select.POLLIN)
                keep = True
            else:
                _respond(notifications, call, errno.EAGAIN)
        except OSError as error:
            if error.errno in NO_ROOM:
                self.put_off.append((notifications, call))
                return
            # To gloo any other error than "nobody is there" is the end of the process.
            waits = os.get_blocking(listening) and error.errno
            _respond(notifications, call, waits or errno.EAGAIN)
        finally:
            if not keep:
                os.close(listening)


def _get_file(process: int, number: int) -> int:
    """Return an own file descriptor for one of another process.

    Raises
    ------
    OSError
        If it has none of that number, or the system does not allow it.
    """
    found = _libc.syscall(_PIDFD_GETFD, process, number, 0)
    if found < 0:
        raise _last_error()
    return int(found)


def _is_ready(listening: int) -> bool:
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    return bool(poll.poll(0))


@contextlib.contextmanager
def _accept(listening: int, flags: int) -> Iterator[tuple[socket.socket, bytes]]:
    """Accept a connection, and close it here in the end; with the address of the other end."""
    address, size = ctypes.create_string_buffer(128), ctypes.c_uint(128)
    file = _libc.accept4(listening, address, ctypes.byref(size), flags | os.O_CLOEXEC)
    if file < 0:
        raise _last_error()
    with socket.socket(fileno=file) as connection:
        yield connection, address.raw[: size.value]


def _write_address(pid: int, call: _Call, address: bytes) -> None:
    """Send a rank the address of the other end, as accept returns it."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(call.size)
        (room,) = ADDRESS_SIZE.unpack(memory.read(ADDRESS_SIZE.size))
        memory.seek(call.size)
        memory.write(ADDRESS_SIZE.pack(len(address)))
        memory.seek(call.address)
        memory.write(address[:room])


def _hand_over(notifications: int, call: _Call, file: int) -> None:
    """Answer a call with a connection."""
    flags = call.flags & os.O_CLOEXEC
    added = bytearray(_ADDED.pack(call.id, _ADD_AND_SEND, file, 0, flags))
    with contextlib.suppress(FileNotFoundError):  # interrupted: nobody waits for it any more
        fcntl.ioctl(notifications, _ADD_FILE, added)


def _respond(notifications: int, call: _Call, code: int) -> None:
    """Answer a call with an error."""
    with contextlib.suppress(FileNotFoundError):
        fcntl.ioctl(notifications, _SEND, bytearray(_RESPONSE.pack(call.id, 0, -code, 0)))


def _last_error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
