"""Let an answer wait for nothing by the clock: a fixed time is no proof that others are ready."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from unittest.mock import patch


@contextlib.contextmanager
def sleepless() -> Iterator[None]:
    """Let ``time.sleep`` of this thread return at once.

    However long a trial makes others take, an answer that sleeps could sleep longer. A loop that
    sleeps until something is there still ends when it is.
    """
    stock, me = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() != me:  # labkit's own threads keep their pace
            stock(seconds)
        elif seconds > 0:
            stock(0)

    with patch.object(time, "sleep", sleep):
        yield
