"""See to what the ranks of one machine need before any process starts.

Without these checks a lab fails late, in the words of whichever library meets the lack first.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from .. import times
from ..errors import StartError

#: Files that the controller has open with no rank, more for each rank (measured: 119 and 8), and
#: what it may need meanwhile.
FILES, FILES_PER_RANK = 160, 10
#: Threads of a lab with no rank, and of each rank (measured: 19 and 13), and what cells may need.
THREADS, THREADS_PER_RANK = 24, 16
LOOPBACK = "127.0.0.1"


def open_standard_streams() -> None:
    """Give this process a stdin, stdout and stderr where a shell has closed them (``>&-``).

    What it opens would get their numbers otherwise, and a child what it is to hand on would be
    taken for its output. Nothing comes from there, and nobody sees what is written.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest number
        if getattr(sys, name) is None and os.path.samestat(os.fstat(number), os.stat(os.devnull)):
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def check_open_files(size: int) -> None:
    """Raise StartError if the limit of open files is too low for so many ranks."""
    if sys.platform == "win32":
        return
    import resource

    needed = FILES + FILES_PER_RANK * size
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        ranks = "1 rank" if size == 1 else f"{size} ranks"
        raise StartError(
            f"A process may open {limit} files here; {ranks} need {needed}. Raise the limit in "
            "the shell before it starts Jupyter or Python: ulimit -n 4096."
        )


def check_threads(size: int) -> None:
    """Raise StartError if this user may not have as many threads more as so many ranks need.

    The limit counts all of the user's, in every program; root has none.
    """
    if not sys.platform.startswith("linux") or os.geteuid() == 0:
        return
    import resource

    needed = THREADS + THREADS_PER_RANK * size
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit != resource.RLIM_INFINITY and limit < needed + (running := count_threads()):
        ranks = "1 rank" if size == 1 else f"{size} ranks"
        raise StartError(
            f"You may have {limit} threads here and have {running}; {ranks} need {needed} more. "
            "End other programs, or raise the limit in the shell before it starts Jupyter or "
            "Python: ulimit -u 4096."
        )


def count_threads() -> int:
    """Count the threads of this user, in all processes that can be seen. Linux only."""
    count = 0
    for process in os.scandir("/proc"):
        with contextlib.suppress(OSError):  # it has ended
            if process.name.isdigit() and process.stat().st_uid == os.geteuid():
                count += os.stat(f"{process.path}/task").st_nlink - 2  # a folder for each
    return count


def check_loopback() -> None:
    """Raise StartError if this machine cannot connect to itself, as the ranks do."""
    try:
        with (
            socket.create_server((LOOPBACK, 0)) as server,
            socket.create_connection(server.getsockname(), times.LOOPBACK_CONNECTED.seconds()),
        ):
            pass
    except OSError as error:
        raise StartError(
            f"The ranks talk over {LOOPBACK}, and no connection can be made there "
            f"({error.strerror or error}): the loopback interface may be down; "
            "`ip link set lo up` starts it (as root)."
        ) from None
