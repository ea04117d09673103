"""Try an answer that lives in the notebook itself and needs no ranks."""

from __future__ import annotations

import contextlib
import linecache
import re
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..base.errors import UsageError, red
from ..notebook import shell
from ..wire.trial import Here, Watched, find, unusable
from . import own_exercises
from .exercise import Exercise, Failed
from .result import Result

#: Where code stands that a learner has not written: labkit's, Python's own, and what is installed.
_LABKIT = f"{Path(__file__).parents[1]}/"
_OTHERS = (_LABKIT, *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")))
_SITE = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3\.\d+/")
#: How many places of the learner's code are shown.
MOST = 4


class TimeUp(BaseException):
    """Say that a trial has used its time. No Exception, so that an answer rarely catches it."""


def try_in_notebook(exercise: Exercise) -> Result:
    """Try the answer that a cell of the notebook has defined; raise UsageError if none has."""
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


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the places in the learner's code that an error came through, outermost first."""
    return [f for f in traceback.extract_tb(error.__traceback__) if _is_own(f.filename)]


def own_lines(error: BaseException) -> tuple[str, ...]:
    """Return the text of each of these places."""
    return tuple((frame.line or "").strip() for frame in own_frames(error))


def tell(error: BaseException) -> str:
    """Return name and message, each place with its neighbouring lines, and what raised it, without
    frames of labkit."""
    name, message = type(error).__name__, str(error)
    lines = [f"{red(name)}: {message}" if message else red(name)]
    own = own_frames(error)
    for frame in own[:1] + own[1:][-(MOST - 1) :]:
        where = f", in {frame.name}" if frame.name != "<module>" else ""
        lines.append(f"  line {frame.lineno}{where}")
        lines += _context(frame.filename, frame.lineno or 0)
    last = traceback.extract_tb(error.__traceback__)[-1]
    if own and not _is_own(last.filename) and not last.filename.startswith(_LABKIT):
        lines.append(f"  raised in {_SITE.sub('', last.filename)}:{last.lineno}, {last.name}")
    return "\n".join(lines)


def _is_own(filename: str) -> bool:
    others = filename.startswith((*_OTHERS, "<frozen"))
    return not others and not own_exercises.is_own(filename)


def _context(filename: str, lineno: int) -> list[str]:
    """Show a line and its two neighbours, the line itself marked."""
    texts = {n: linecache.getline(filename, n).rstrip() for n in range(lineno - 1, lineno + 2)}
    return [
        f"  {'-->' if n == lineno else '   '} {n:3} {text}" for n, text in texts.items() if text
    ]
