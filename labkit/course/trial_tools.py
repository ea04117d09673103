"""What a trial puts around an answer: noted all-reduces, a disk that is slow, no fixed sleep."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

_pause = time.sleep  #: as it is where an answer's own sleep returns at once


class Notes:
    """What was started and waited for."""

    def __init__(self) -> None:
        self.bytes: list[int] = []
        self.waits = 0


class _Work:
    """Stand in for a handle, and note that somebody waits for it."""

    def __init__(self, work: Any, notes: Notes) -> None:
        self._work, self._notes = work, notes

    def wait(self, *args: Any) -> Any:
        self._notes.waits += 1
        return self._work.wait(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


@contextmanager
def noted() -> Iterator[Notes]:
    """Record the all-reduces that are called from here on, and who waits for them."""
    notes, original = Notes(), dist.all_reduce

    def all_reduce(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
        notes.bytes.append(tensor.nbytes)
        work = original(tensor, *args, **named)
        if work is None:
            notes.waits += 1
            return None
        return _Work(work, notes)

    with patch.object(dist, "all_reduce", all_reduce):
        yield notes


def slow_save(save: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Return a ``torch.save`` that takes so long, in the middle of the file: a rank that waits
    until there is a file finds half of one. Into what is no path it writes immediately."""

    def slow(state: Any, target: Any, *args: Any, **options: Any) -> None:
        if not isinstance(target, str | os.PathLike):
            save(state, target, *args, **options)
            return
        whole = io.BytesIO()
        save(state, whole, *args, **options)
        data = whole.getvalue()
        with open(target, "wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            _pause(seconds)
            file.write(data[len(data) // 2 :])

    return slow


@contextmanager
def sleepless() -> Iterator[None]:
    """Make ``time.sleep`` of this thread return immediately: a fixed time is no proof that others
    are ready, and an answer could always sleep longer than a trial makes others take. A loop that
    sleeps until something is there still ends when it is."""
    original, me = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() != me:  # labkit's own threads keep their pace
            original(seconds)
        elif seconds > 0:
            original(0)

    with patch.object(time, "sleep", sleep):
        yield
