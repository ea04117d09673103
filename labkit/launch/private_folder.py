"""Keep what a lab needs on disk in a folder that only its user can enter, and never leave one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from ..errors import StartError

PREFIX = "labkit-"
#: Longest name of a folder: a unix socket's name has at most 107 bytes, ours add "/zmq:65535".
MAX_LENGTH = 96
#: Seconds before a folder without an owner counts as left behind: a new one is locked by then.
SETTLED = 10


class PrivateFolder:
    """Make a folder (mode 0700), locked for as long as this process lives.

    Raises
    ------
    StartError
        If there is no room for it, or its name would be too long for sockets.
    """

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        room = MAX_LENGTH - len(PREFIX) - 9
        if len(parent) > room:
            raise StartError(
                f"The folder for temporary files has too long a name for sockets: {parent}; "
                f"point TMPDIR at one of at most {room} characters."
            )
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

    def remove(self) -> None:
        """Remove the folder and let go of its lock. Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def sweep() -> None:
    """Remove folders of this user whose owner is gone: it and the warm process were killed at
    once, so nobody could tidy up."""
    for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            status = (path / "owner").stat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < SETTLED:
                continue
            lock = os.open(path / "owner", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while it has an owner
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
