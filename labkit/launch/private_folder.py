"""Keep what a lab needs on disk in a folder that only its user can enter, and never leave one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path

from ..base import times, trust
from ..base.errors import StartError

PREFIX = "labkit-"
#: What the folder of ipyparallel's files is called in there.
PROFILE = "profile"
#: Longest name of a folder in bytes: a unix socket's has at most 107, ours add "/zmq:65535".
MAX_LENGTH = 96


class PrivateFolder:
    """Make a folder (mode 0700), locked for as long as this process lives.

    Parameters
    ----------
    sockets
        Whether there will be sockets in it, whose names must be short.

    Raises
    ------
    StartError
        If there is no room for it, if its name could not be a socket's, or if somebody else
        could put another folder in its place.
    """

    def __init__(self, *, sockets: bool = True) -> None:
        parent = tempfile.gettempdir()
        if sockets:
            _check_name(parent)
        _check_others(parent)
        self._lock: int | None = None
        path = None
        try:
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = os.open(path / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # let go by the system, however we end
            os.write(self._lock, f"{os.getpid()}\n".encode())
        except OSError as error:
            if path is not None:
                self.path = path
                self.remove()
            raise StartError(
                f"Cannot start the ranks: no private folder in {parent} ({error.strerror}); "
                "free some space there or point TMPDIR at a folder you can write to."
            ) from None
        self.path = path

    def locks(self) -> list[int]:
        """Return the file that locks the folder, for another process to hold as well."""
        return [] if self._lock is None else [self._lock]

    def remove(self) -> None:
        """Remove the folder and let go of its lock. Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def check_place(parent: str) -> None:
    """Raise StartError unless private folders can be made in a folder, with sockets in them."""
    _check_name(parent)
    _check_others(parent)


def _check_name(parent: str) -> None:
    try:
        length = len(parent.encode())
    except UnicodeEncodeError:  # bytes that are no letters in the encoding of file names
        raise StartError(
            f"The folder for temporary files has a name that sockets cannot have: {parent!a} "
            f"(file names are {sys.getfilesystemencoding()} here); point TMPDIR at one in plain "
            "letters, or set LC_ALL to C.UTF-8."
        ) from None
    room = MAX_LENGTH - len(PREFIX) - 9
    if length > room:
        raise StartError(
            f"The folder for temporary files has too long a name for sockets: {parent}; "
            f"point TMPDIR at one of at most {room} characters (bytes in UTF-8)."
        )


def _check_others(parent: str) -> None:
    if why := trust.unsafe_reason(parent, crowded=True):
        raise StartError(
            f"The folder for temporary files, {parent}, is not safe from other users: {why}; "
            "point TMPDIR at a folder that only you can write to, or that has the sticky bit "
            "as /tmp has."
        )


def sweep() -> None:
    """Remove folders of this user whose owner is gone: it and the warm process were killed at
    once, so nobody could tidy up.

    Others can lay folders there that look like ours: only one that this user alone can enter is
    looked into, and no link is followed.
    """
    parent = tempfile.gettempdir()
    if trust.unsafe_reason(parent, crowded=True):
        return
    for path in Path(parent).glob(PREFIX + "*"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            if not _is_own(os.fstat(folder)):
                continue
            status = os.stat("owner", dir_fd=folder, follow_symlinks=False)
            fresh = time.time() - status.st_mtime < times.FOLDER_LOCKED
            if fresh or not (_is_own(status) and stat.S_ISREG(status.st_mode)):
                continue
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open("owner", flags, dir_fd=folder)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while it has an owner
            shutil.rmtree(path, ignore_errors=True)


def _is_own(status: os.stat_result) -> bool:
    """Return whether a file or folder is this user's, and nobody else can do anything with it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def home_variables(folder: Path) -> dict[str, str]:
    """Return the variables that put into ``folder`` what belongs in a home, if that takes nothing.

    IPython and matplotlib otherwise make a new folder for temporary files in each process, and
    leave it there.
    """
    home = os.path.expanduser("~")
    if os.path.isdir(home) and os.access(home, os.W_OK):
        return {}
    wanted = {"IPYTHONDIR": folder / "ipython", "MPLCONFIGDIR": folder / "matplotlib"}
    return {name: str(path) for name, path in wanted.items() if not os.environ.get(name)}
