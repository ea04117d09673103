"""A worker that fails waits for those that may meet the same error, and for no others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from labkit.base import times
from labkit.rank.torchrun import worker

BUSY = "while True: pass"
ASLEEP = "import time; time.sleep(60)"


@pytest.fixture
def other(request: pytest.FixtureRequest) -> Iterator[psutil.Process]:
    """A process below this one, which counts as torchrun here."""
    with subprocess.Popen([sys.executable, "-c", request.param]) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


def wait(have_ended=lambda: False) -> float:
    began = time.monotonic()
    worker._wait_for_others(os.getpid(), have_ended)
    return time.monotonic() - began


@pytest.mark.parametrize("other", [BUSY], indirect=True)
def test_nobody_waits_for_those_that_have_said_their_end(other):
    assert wait(lambda: True) < times.OTHERS_ENDED.least


def test_nobody_waits_alone():
    assert wait() < times.OTHERS_ENDED.least


def test_one_that_has_not_been_forked_yet_is_waited_for(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(times, "OTHERS_ENDED", times.Bound(0.3))
    assert wait() >= 0.3


@pytest.mark.parametrize("other", [ASLEEP], indirect=True)
def test_one_that_does_nothing_is_waited_for_as_long_as_it_takes_to_see_that(other):
    while other.status() == psutil.STATUS_RUNNING:
        time.sleep(0.01)
    assert times.OTHER_IDLE.least <= wait() < times.OTHERS_ENDED.least


@pytest.mark.parametrize("other", [BUSY], indirect=True)
def test_one_that_computes_is_waited_for_by_its_own_time(other, monkeypatch):
    monkeypatch.setattr(times, "OTHER_COMPUTED", times.Bound(0.2))
    before = sum(other.cpu_times()[:2])
    seconds = wait()
    assert sum(other.cpu_times()[:2]) - before >= 0.2 or seconds >= times.OTHERS_ENDED.least


@pytest.mark.parametrize("other", [BUSY], indirect=True)
def test_it_has_a_bound(other, monkeypatch):
    monkeypatch.setattr(times, "OTHER_COMPUTED", times.Bound(1e9))
    monkeypatch.setattr(times, "OTHERS_ENDED", times.Bound(0.5))
    assert wait() >= 0.5
