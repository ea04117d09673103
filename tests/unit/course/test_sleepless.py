"""An answer cannot pass by waiting for a fixed time; other threads keep their pace."""

from __future__ import annotations

import threading
import time

from labkit.course.sleepless import sleepless


def test_sleep_returns_at_once() -> None:
    began = time.monotonic()
    with sleepless():
        time.sleep(60)
    assert time.monotonic() - began < 30


def test_other_threads_sleep() -> None:
    slept: list[float] = []

    def sleep() -> None:
        began = time.monotonic()
        time.sleep(0.2)
        slept.append(time.monotonic() - began)

    with sleepless():
        thread = threading.Thread(target=sleep)
        thread.start()
        thread.join()
    assert slept[0] > 0.15


def test_the_stock_sleep_comes_back() -> None:
    stock = time.sleep
    with sleepless():
        assert time.sleep is not stock
    assert time.sleep is stock
