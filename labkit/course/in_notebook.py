"""Try an answer that lives in the notebook itself and needs no ranks."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ..errors import UsageError
from ..notebook import shell
from ..wire.trial import Here, Watched, find, unusable
from .exercise import Exercise, Failed
from .own_lines import own_frames, own_lines, tell
from .result import Result


class TimeUp(BaseException):
    """Say that a trial has used its time. No Exception, so that an answer rarely catches it."""


def try_in_notebook(exercise: Exercise) -> Result:
    """Try the answer that a cell of the notebook has defined.

    Raises
    ------
    UsageError
        If no cell has.
    """
    names = names_of_notebook()
    if exercise.answer not in names:
        raise UsageError(
            f"This notebook has no `{exercise.answer}` yet: run the cell of exercise "
            f"{exercise.id} first."
        )
    found = find(exercise.answer, names)
    if found != "written":
        return Result(exercise, 1, [None], [None], found=found)
    notes = []
    waited = ""
    here = _here()  # torch's import can take longer than a trial may, and is not to be broken off
    answer = names[exercise.answer]
    if not isinstance(answer, type):
        answer = Watched(answer)
    try:
        with _bound(exercise.seconds):
            value = exercise.trial(answer, here)
    except TimeUp as stopped:
        value = Failed("TimedOut", f"stopped after {exercise.seconds:g} s", own_lines(stopped))
        waited = value.text()
    except Exception as error:
        if own_frames(error) or not isinstance(answer, Watched):
            value = Failed(type(error).__name__, str(error), own_lines(error))
            notes.append(tell(error))
        else:
            value = Failed.of_trial(unusable(error, answer))
    return Result(exercise, 1, [value], [exercise.expected()], notes=notes, waited=waited)


def _here() -> Here:
    """Return what a trial may know about this process: one that computes alone, on the CPU."""
    import torch

    return Here(rank=0, world_size=1, device=torch.device("cpu"))


def names_of_notebook() -> dict[str, Any]:
    """Return the names of the notebook's cells; in a plain program those of its main module."""
    found = shell.current()
    return found.user_ns if found is not None else vars(sys.modules["__main__"])


@contextlib.contextmanager
def _bound(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeUp` in here when the time is up, where the system can do that."""
    main = threading.current_thread() is threading.main_thread()
    if not (main and hasattr(signal, "setitimer")):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
