"""Share memory with another process of this host through a file that has no name.

``memfd_create`` makes a file that exists in memory only and in no folder, neither in ``/dev/shm``
nor elsewhere: the system frees it when the last process has closed it, however that process ends.
Another process of the same user opens it as ``/proc/PID/fd/N``. The process that makes a file is
always the notebook's, so a rank that dies leaves nothing open, whichever of the two has written.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass

#: The name that ``/proc`` shows for every such file.
NAME = "labkit"
#: Begins each file. A process number and a file number mean something else on another host or in
#: another container, and soon something else on this one: whoever opens a file compares this first.
TOKEN_BYTES = 16
#: Where a piece begins is a multiple of this: vector instructions load aligned memory faster.
ALIGNMENT = 64
#: What is copied in one go, in bytes: an interrupt waits for that long, some milliseconds.
CHUNK = 16 << 20


class MemoryFileError(Exception):
    """A file cannot be made, opened or written: there is no room, or it is on another host."""


@dataclass(frozen=True)
class Address:
    """Where another process finds a file."""

    pid: int
    fd: int  #: in that process
    token: bytes


@dataclass(frozen=True)
class Piece:
    """A part of a file."""

    begin: int
    size: int  #: in bytes


class MemoryFile:
    """A file in memory, open in this process. A context manager, which closes it.

    Made by :meth:`create`, and by :meth:`open` where another process has created it.
    """

    def __init__(self, fd: int, address: Address) -> None:
        self._fd = fd
        self.address = address
        #: Called with the number of bytes of each chunk that was copied.
        self.on_chunk: Callable[[int], None] = lambda count: None
        self._end = TOKEN_BYTES

    @classmethod
    def create(cls) -> MemoryFile:
        """Create an empty file.

        MemoryFileError: if this system has no such files, or this process no descriptor left.
        """
        if not hasattr(os, "memfd_create"):
            raise MemoryFileError("this system has no files without a name")
        token = secrets.token_bytes(TOKEN_BYTES)
        try:
            fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
            file = cls(fd, Address(os.getpid(), fd, token))
            file._write_at(0, memoryview(token))
        except OSError as error:
            raise MemoryFileError(str(error)) from error
        return file

    @classmethod
    def open(cls, address: Address) -> MemoryFile:
        """Open a file that another process of this host and user has created, and keeps open.

        MemoryFileError: if it is not there, or is another one.
        """
        path = f"/proc/{address.pid}/fd/{address.fd}"
        try:
            # First by its name: to open a terminal or a pipe could block, or do something.
            if os.readlink(path) != f"/memfd:{NAME} (deleted)":
                raise MemoryFileError(f"{path} is another file")
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise MemoryFileError(str(error)) from error
        file = cls(fd, address)
        if os.pread(fd, TOKEN_BYTES, 0) != address.token:
            file.close()
            raise MemoryFileError(f"{path} is another file")
        return file

    def write(self, data: memoryview) -> Piece:
        """Append bytes.

        MemoryFileError: if there is no room for them.
        """
        begin = -(-self._end // ALIGNMENT) * ALIGNMENT
        try:
            self._write_at(begin, data)
        except OSError as error:
            raise MemoryFileError(str(error)) from error
        self._end = begin + data.nbytes
        return Piece(begin, data.nbytes)

    def _write_at(self, begin: int, data: memoryview) -> None:
        done = 0
        while done < data.nbytes:
            count = os.pwrite(self._fd, data[done : done + CHUNK], begin + done)
            done += count
            self.on_chunk(count)

    def read_into(self, piece: Piece, memory: memoryview) -> None:
        """Copy a piece. The file is read, not mapped: if it were cut, a mapping would end the
        process by SIGBUS.

        MemoryFileError: if it is not all there.
        """
        done = 0
        while done < piece.size:
            part = memory[done : min(done + CHUNK, piece.size)]
            try:
                count = os.preadv(self._fd, [part], piece.begin + done)
            except OSError as error:
                raise MemoryFileError(str(error)) from error
            if not count:
                raise MemoryFileError("the file ends early")
            done += count
            self.on_chunk(count)

    def close(self) -> None:
        """Close the file here. Safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> MemoryFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def is_reachable(address: Address | None) -> bool:
    """Return whether this process can open a file."""
    try:
        if address is not None:
            MemoryFile.open(address).close()
            return True
    except MemoryFileError:
        pass
    return False
