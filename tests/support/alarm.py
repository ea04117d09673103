"""Fail a test that hangs, instead of the whole run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the main thread when what is inside takes longer than ``seconds``."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not over after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
