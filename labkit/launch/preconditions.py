"""Check what the ranks of one machine need before any process starts.

Without these checks a lab fails late, in the words of whichever library meets the lack first.
"""

from __future__ import annotations

import socket
import sys

from ..errors import StartError

#: Files that the controller has open with no rank, more for each rank (measured: 119 and 8), and
#: what it may need meanwhile.
FILES, FILES_PER_RANK = 160, 10
#: Seconds to wait for a connection within this machine.
CONNECT_SECONDS = 2.0
LOOPBACK = "127.0.0.1"


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


def check_loopback() -> None:
    """Raise StartError if this machine cannot connect to itself, as the ranks do."""
    try:
        with (
            socket.create_server((LOOPBACK, 0)) as server,
            socket.create_connection(server.getsockname(), timeout=CONNECT_SECONDS),
        ):
            pass
    except OSError as error:
        raise StartError(
            f"The ranks talk over {LOOPBACK}, and no connection can be made there "
            f"({error.strerror or error}): the loopback interface may be down; "
            "`ip link set lo up` starts it (as root)."
        ) from None
