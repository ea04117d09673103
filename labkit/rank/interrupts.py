"""Let an interrupt reach the code of a cell, and nothing else in a rank.

Between cells, while a reply is being sent or the process group formed, a KeyboardInterrupt would
cost the reply, or the rank: the notebook would wait for what never comes. An interrupt that comes
before the code of its cell has begun is kept for it; one that comes when it has ended is dropped.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

from ..wire import errands
from . import ipython_internals, stack_file

F = TypeVar("F", bound=Callable[..., Any])

#: Functions on whose behalf code of the learner's runs: what they raise is told to the notebook.
_runners: set[CodeType] = set()
#: Whether the code of the request that is being handled has begun.
_begun = True
#: Whether an interrupt came before that.
_early = False


def reaches(function: F) -> F:
    """Let an interrupt reach what this function does: what it raises is told to the notebook."""
    _runners.add(ipython_internals.code_of(function))
    return function


def install(kernel: Any) -> None:
    """Begin, in the kernel of this rank."""
    _runners.update(ipython_internals.codes_of_cells(kernel.shell))
    stack_file.install()
    ipython_internals.on_interrupt(kernel, _begin_request, handle)


def _begin_request() -> None:
    global _begun, _early
    _begun = _early = False
    stack_file.begin_request()


def begin() -> None:
    """Note that the code of a request begins; raise an interrupt that came before."""
    global _begun, _early
    _begun, early, _early = True, _early, False
    if early:
        raise KeyboardInterrupt


def handle(signum: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt where code of the learner's runs."""
    global _early
    stack_file.note_interrupt()
    if _in_code(frame):
        signal.default_int_handler(signum, frame)
    _early = not _begun


def _in_code(frame: FrameType | None) -> bool:
    """Tell whether a stack stands in code of the learner's, or in an errand that may be cut."""
    while frame is not None:
        if frame.f_code in _runners or ipython_internals.is_applied(frame):
            return True
        outer = frame.f_back
        is_errand = frame.f_code is errands.on_rank.__code__
        if is_errand and outer and ipython_internals.is_applied(outer):
            return False  # labkit's own; a trial is one too, within a call
        frame = outer
    return False
