"""Free a rank that waits in a ``FileStore``: in C++, in short sleeps, deaf to interrupts.

It opens the file anew each time that it looks. For a moment the name leads nowhere, and what waits
raises an error; then the file is back as it was.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from .. import times
from . import steady

#: What the file is called in the meantime.
ASIDE = ".labkit"

#: files of the stores of this process
paths: set[str] = set()
_stock: Callable[..., None] | None = None


def install() -> None:
    """Begin to remember the files of stores; once."""
    global _stock
    if _stock is None:
        _stock = dist.FileStore.__init__
        dist.FileStore.__init__ = _open  # type: ignore[method-assign]


def _open(self: Any, *given: Any, **named: Any) -> None:
    assert _stock is not None
    _stock(self, *given, **named)
    paths.add(os.path.abspath(self.path))


def free(has_moved: Callable[[], bool]) -> int:
    """Let what waits in a ``FileStore`` raise an error, in a thread; return how many files there
    may be to wait for.

    Parameters
    ----------
    has_moved
        Tells whether the rank goes on.
    """
    found = [path for path in paths if os.path.isfile(path)]
    if found:
        threading.Thread(
            target=_free, args=(found, has_moved), name="labkit store", daemon=True
        ).start()
    return len(found)


def _free(found: list[str], has_moved: Callable[[], bool]) -> None:
    deadline = steady.now() + times.FILE_STORE_FREED.seconds()
    while not _comes(has_moved, times.FILE_STORE_LEFT.seconds()) and steady.now() < deadline:
        with contextlib.ExitStack() as back:
            for path in found:
                back.enter_context(_away(path))
            time.sleep(times.FILE_STORE_AWAY.seconds())


def _comes(has_moved: Callable[[], bool], seconds: float) -> bool:
    """Wait until a rank goes on, at most for some seconds; tell whether it does."""
    deadline = steady.now() + seconds
    while not has_moved() and steady.now() < deadline:
        time.sleep(times.FILE_STORE_LOOK)
    return has_moved()


@contextlib.contextmanager
def _away(path: str) -> Iterator[None]:
    """Let a file's name lead nowhere; leave it to another rank that does so already."""
    aside = path + ASIDE
    try:
        os.link(path, aside)  # fails where another rank was first
    except OSError:
        yield
        return
    try:
        loop = f"{aside}.{os.getpid()}"
        os.symlink(os.path.basename(path), loop)
        os.replace(loop, path)  # a link to itself: it cannot be opened
        yield
    finally:
        os.replace(aside, path)
