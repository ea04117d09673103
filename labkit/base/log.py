"""Write down what labkit does, for a bug report: ``LABKIT_LOG=debug:labkit.log``.

The variable has a level and, if you like, a file to append to::

    LABKIT_LOG=info jupyter lab                 what happens: starts, deaths, deadlocks, repairs
    LABKIT_LOG=debug:labkit.log jupyter lab     also each look at the ranks, each process, each time

``labkit.deadlock.replay`` finds the verdicts of such a file again, from each look's samples::

    python -m labkit.deadlock.replay labkit.log

Without a file it goes to stderr, which in a notebook is below the cell; so for a bug report name a
file. It is read at every ``labkit.start``. A line of it has the time, the process, the part of
labkit by its module, and what that did; of your program it has the lines at which ranks wait, as
the message of a deadlock does, the sizes and types of the tensors in their calls, the names of
threads and tasks and the keys of stores that they wait for, and no values.

These are loggers of Python's own ``logging`` below "labkit", so a program that keeps a log can
have them in there without the variable: ``logging.getLogger("labkit").setLevel("DEBUG")``. When
nobody listens, a line costs one look at a level.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import sys
from importlib import metadata
from io import TextIOWrapper
from pathlib import Path

from . import trust
from .errors import DataError, UsageError
from .files import reason

VARIABLE = "LABKIT_LOG"
LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}
FORMAT = "%(asctime)s.%(msecs)03d %(process)d %(name)s: %(message)s"
#: Whose versions a bug report needs.
PACKAGES = ("torch-labkit", "torch", "ipyparallel", "ipykernel", "pyzmq")

_handler: logging.Handler | None = None  #: ours, for what the variable said last
_asked = ""  #: what it said

_log = logging.getLogger(__name__)


def begin() -> None:
    """Log what the variable asks for; nothing if it is not set.

    UsageError if it has no level that there is, DataError if its file cannot be written.
    """
    global _asked, _handler
    asked = os.environ.get(VARIABLE, "")
    if asked == _asked:
        return
    handler = None
    level, _, file = asked.partition(":")
    if asked:
        if level not in LEVELS:
            raise UsageError(
                f"The variable {VARIABLE} must be a level, {' or '.join(LEVELS)}, with a file if "
                f"you like, as in debug:labkit.log; got {asked!r}."
            )
        handler = _open(file)
        handler.setFormatter(logging.Formatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
    ours = logging.getLogger("labkit")
    if _handler is not None:
        ours.removeHandler(_handler)
        _handler.close()
    _asked, _handler = asked, handler
    ours.setLevel(LEVELS.get(level, logging.NOTSET))
    if handler is not None:
        ours.addHandler(handler)
        _log.info("%s; %s", _versions(), platform.platform())


def _open(file: str) -> logging.Handler:
    if not file:
        return logging.StreamHandler(sys.stderr)
    path = Path(file).expanduser()
    if why := trust.unsafe_link_reason(path):
        raise DataError(f"The log {path} cannot be written: {why}; name a file of your own.")
    try:
        return _LogFile(path, encoding="utf-8")
    except OSError as error:
        raise DataError(f"The log {path} cannot be written ({reason(error)}).") from None


class _LogFile(logging.FileHandler):
    """Append to a file of this user's own, which is not another's under a second name."""

    def _open(self) -> TextIOWrapper:
        place = os.path.realpath(self.baseFilename)
        # A device, a pipe, or a caller's open file that has no name: as /dev/stderr can be each.
        if os.path.exists(self.baseFilename) and not os.path.isfile(place):
            return open(self.baseFilename, "a", encoding=self.encoding)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        stream = os.fdopen(os.open(place, flags, 0o666), "a", encoding=self.encoding)
        status = os.fstat(stream.fileno())
        if status.st_uid in (0, os.geteuid()) and status.st_nlink <= 1:
            return stream
        stream.close()
        why = "it has a second name" if status.st_nlink > 1 else "it belongs to another user"
        raise OSError(errno.EPERM, why)


def _versions() -> str:
    """List the versions that a bug report needs."""
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} (not installed)")
    return ", ".join(found)
