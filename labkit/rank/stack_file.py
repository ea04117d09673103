"""Let the notebook find out where this rank stands while C code holds the interpreter, and where
it was when C code has crashed it."""

from __future__ import annotations

import contextlib
import faulthandler
import os
from typing import BinaryIO

from ..wire import stack_file
from ..wire.protocol import RECORD_FOLDER

_file: BinaryIO | None = None


def install() -> None:
    """Write the main thread's stack on a signal, and that of a crash, where there is a folder."""
    global _file
    folder = os.environ.get(RECORD_FOLDER)
    if not folder or stack_file.SIGNAL is None or not hasattr(faulthandler, "register"):
        return
    with contextlib.suppress(OSError):  # no room: a stop does not say then where the rank is
        _file = open(stack_file.path_of(folder, os.getpid()), "ab", buffering=0)  # noqa: SIM115
        # The stack of the thread that gets the signal: that of a process goes to the main one.
        faulthandler.register(stack_file.SIGNAL, file=_file, all_threads=False)
        faulthandler.enable(_file, all_threads=False)  # and of the thread that crashes


def begin_request() -> None:
    """Forget what was written for an earlier request."""
    if _file is not None:
        with contextlib.suppress(OSError):
            os.ftruncate(_file.fileno(), 0)


def note_interrupt() -> None:
    """Write down that Python has seen an interrupt."""
    if _file is not None:
        with contextlib.suppress(OSError):
            _file.write(stack_file.SEEN.encode())
