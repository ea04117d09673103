"""See to what the ranks of one machine need before any process starts.

Without these checks a lab fails late, in the words of whichever library meets the lack first.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from ..base import times
from ..base.errors import StartError

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


def folder_gone_reason(process: int | str = "self") -> str:
    """Return what has become of the folder in which a process of this machine stands, "" if it is
    there. What stands in none can start nothing. Linux only."""
    try:
        link = f"/proc/{process}/cwd"
        if os.stat(link).st_nlink:
            return ""
        path = os.readlink(link).removesuffix(" (deleted)")
    except OSError:  # no Linux, or a folder of a network that does not answer
        return ""
    return f"{path} was deleted" + (
        ", and another folder made under its name" if os.path.isdir(path) else ""
    )


def check_folder() -> None:
    """Raise StartError if the working folder of this process is gone: ranks would stand in it."""
    if why := folder_gone_reason():
        raise StartError(
            f"The working folder of this notebook is gone ({why}). os.chdir(…) to one that is "
            "there, then call labkit.start() again; or restart the kernel."
        )


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


def check_interface(variable: str, *, prefixes: bool = False) -> None:
    """Raise StartError if a variable names a network interface that no rank could use.

    A setting that is left over from another machine fails in C++, after all ranks have started.

    Parameters
    ----------
    variable
        ``GLOO_SOCKET_IFNAME`` or ``NCCL_SOCKET_IFNAME``: names with commas between.
    prefixes
        Whether they are NCCL's: one of them is enough, and begins the names of interfaces;
        ``=eth0`` is one whole name, and ``^docker`` leaves out what it begins.
    """
    value = os.environ.get(variable, "").strip()
    if not value or not (usable := _usable_interfaces()):
        return
    wanted = [name.strip() for name in value.lstrip("^=").split(",") if name.strip()]
    if not prefixes:
        fits = all(name in usable for name in wanted)
    elif value.startswith("^"):
        fits = any(not name.startswith(tuple(wanted)) for name in usable)
    elif value.startswith("="):
        fits = any(name in wanted for name in usable)
    else:
        fits = any(name.startswith(tuple(wanted)) for name in usable)
    if not fits:
        raise StartError(
            f"{variable}={value} names no network interface of this machine that is up and has an "
            f"address ({', '.join(sorted(usable))}). Write os.environ.pop({variable!r}), or name "
            "one of these, then call labkit.start() again."
        )


def _usable_interfaces() -> set[str]:
    """Return the network interfaces that are up and have an address; nothing if nobody knows."""
    import psutil

    kinds = (socket.AF_INET, socket.AF_INET6)
    try:
        up = {name for name, state in psutil.net_if_stats().items() if state.isup}
        addresses = psutil.net_if_addrs()
    except (OSError, psutil.Error):
        return set()
    return {name for name in up if any(a.family in kinds for a in addresses.get(name, ()))}


def memory_limit() -> str:
    """Return which limit of its memory may have ended a rank, "" if there is none; the sentence
    goes on after it."""
    if sys.platform == "win32":
        return ""
    import resource

    for limit, letter, what in (
        (resource.RLIMIT_AS, "v", "address space"),
        (resource.RLIMIT_DATA, "d", "data"),
    ):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY:
            return (
                f"A process may have {most / 2**30:.3g} GiB of {what} here, which may be too "
                "little for a rank; before Jupyter or Python starts, the shell can raise that: "
                f"ulimit -{letter} unlimited"
            )
    return ""
