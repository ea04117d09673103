"""The pretended GPU of scripts/pretend.py, by a clock of its own: no test waits."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "notebooks" / "scripts" / "pretend.py"


class Clock:
    """A clock that goes on when somebody sleeps, and by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> ModuleType:
    spec = importlib.util.spec_from_file_location("pretend", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "time", clock)
    return module


def test_a_cpu_that_is_a_little_late_costs_nothing(pretend: ModuleType, clock: Clock) -> None:
    pretend.gpu.compute(0.020)
    clock.sleep(0.009)
    pretend.gpu.compute(0.020)
    assert clock.now == pytest.approx(100.040)


@pytest.mark.parametrize("late", [0.011, 5.0])
def test_a_device_without_work_is_idle(pretend: ModuleType, clock: Clock, late: float) -> None:
    pretend.gpu.compute(0.020)
    clock.sleep(late)
    pretend.gpu.compute(0.020)
    assert clock.now == pytest.approx(100.040 + late)


def test_what_is_timed_begins_with_the_clock(pretend: ModuleType, clock: Clock) -> None:
    pretend.gpu.compute(0.020)
    clock.sleep(0.009)
    pretend.gpu.synchronize()
    pretend.gpu.compute(0.020)
    assert clock.now == pytest.approx(100.049)


def test_a_backward_pass_takes_twice_as_long(pretend: ModuleType, clock: Clock) -> None:
    torch = pretend.torch
    y = pretend.Layer(2, seconds=0.5)(torch.ones(1, 2))
    assert clock.now == pytest.approx(100.5)
    y.sum().backward()
    assert clock.now == pytest.approx(101.5)
