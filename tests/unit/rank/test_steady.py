"""The clock by which labkit goes on a rank is none that a program freezes."""

from __future__ import annotations

import asyncio
import time

import pytest

from labkit.rank import steady


def test_it_goes_on_where_the_program_has_frozen_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, real = steady.now(), time.time_ns()
    for name in ("time", "time_ns", "monotonic", "monotonic_ns"):
        monkeypatch.setattr(time, name, lambda: 5)
    while steady.now() == begin:
        pass
    assert abs(steady.since_1970() - real) < 60e9
    loop = asyncio.new_event_loop()
    steady.keep(loop)
    woken: list[float] = []
    loop.call_later(0.01, lambda: (woken.append(loop.time()), loop.stop()))
    loop.run_forever()
    loop.close()
    assert woken[0] - begin >= 0.01
