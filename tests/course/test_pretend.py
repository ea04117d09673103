"""The pretended GPU and link of scripts/pretend.py, by a clock of their own: no test waits."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

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


def test_how_late_a_cpu_may_be_can_be_set(pretend: ModuleType, clock: Clock) -> None:
    pretend.gpu.late = 1.0
    pretend.gpu.synchronize()
    for _ in range(10):
        pretend.gpu.compute(0.020)
        clock.sleep(0.019)
    assert clock.now == pytest.approx(100.219), "it was late ten times, and caught up each time"
    pretend.gpu.synchronize()
    pretend.gpu.compute(0.020)
    clock.sleep(0.500)
    pretend.gpu.compute(0.020)
    assert clock.now == pytest.approx(100.739), "what really took longer is seen"


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


class Neighbour:
    """torch.distributed with one other rank, which is ready at a time and sends a tensor."""

    irecv, isend = "irecv", "isend"

    def __init__(self, ready: float, tensor: torch.Tensor) -> None:
        self.sends = [torch.tensor([ready], dtype=torch.float64), tensor]
        self.received: list[torch.Tensor] = []

    def new_group(self) -> None: ...

    def P2POp(self, call: str, x: torch.Tensor, peer: int) -> tuple[str, torch.Tensor]:
        return call, x

    def batch_isend_irecv(self, calls: list[tuple[str, torch.Tensor]]) -> list[object]:
        for call, x in calls:
            if call == "irecv":
                x.copy_(self.sends.pop(0))
            else:
                self.received.append(x.clone())
        return []


@pytest.mark.parametrize(("ready", "end"), [(99.0, 100.026), (100.003, 100.029)])
def test_a_message_begins_when_both_are_ready(
    pretend: ModuleType, clock: Clock, monkeypatch: pytest.MonkeyPatch, ready: float, end: float
) -> None:
    neighbour = Neighbour(ready, torch.ones(2))
    monkeypatch.setattr(pretend, "dist", neighbour)
    link = pretend.Link(alpha=0.010, beta=0.002)
    incoming = torch.zeros(2)
    link.turn(torch.zeros(1), 1, incoming, 1)
    assert incoming.tolist() == [1.0, 1.0]
    assert clock.now == pytest.approx(end), "10 ms, and 2 ms for each of the larger tensor's bytes"
    clock.sleep(0.009)
    link.turn(torch.zeros(1), 1)
    assert clock.now == pytest.approx(end + 0.018), "it did not notice that the rank came late"
    assert neighbour.received[-2].item() == pytest.approx(end), "when the sender was ready"
