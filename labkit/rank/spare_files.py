"""Keep a few file descriptors for labkit on a rank whose program has used up all of them.

To tell what a rank waits for, labkit reads files of the system's. Without a descriptor it would take
the rank for one that works, for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable
from typing import TypeVar

from ..errors import LabError

Result = TypeVar("Result")

#: How many: a look has one folder and one file open, and doubles a socket.
COUNT = 4
_kept: list[int] = []


def keep() -> None:
    """Take descriptors as far as there are some."""
    with contextlib.suppress(OSError):
        while len(_kept) < COUNT:
            _kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def check(needed: int) -> None:
    """Look whether so many descriptors are free: what gloo's threads lack, they wait for.

    Raises
    ------
    LabError
        If they are not.
    """
    taken: list[int] = []
    try:
        for _ in range(needed):
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise LabError(
            f"no file descriptor is left for the process group ({error.strerror}; this process may "
            f"have {most} open). lab.restart() gives fresh ranks; ulimit -n allows more."
        ) from None
    finally:
        for descriptor in taken:
            os.close(descriptor)


def use(function: Callable[[], Result]) -> Result:
    """Call a function; where it finds no descriptor, once more with those that were kept."""
    try:
        return function()
    except OSError as error:
        if error.errno != errno.EMFILE or not _kept:
            raise
    while _kept:
        os.close(_kept.pop())
    try:
        return function()
    finally:
        keep()
