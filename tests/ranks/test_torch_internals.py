"""A torch that has renamed what labkit knows: one feature is off and says so, all else works."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import pytest

import labkit
from labkit import Deadlock
from labkit.notebook import startup
from tests.support.cells import results, run_cell
from tests.support.hide_torch_name import VARIABLE

# A zygote has looked at torch's names before they are hidden.
pytestmark = pytest.mark.usefixtures("cold")

TORCH = f"torch {version('torch')} hides"
RECORDER, MESSAGES = "_distributed_c10d._dump_fr_trace", "ProcessGroup.send"
BIRTHS, GROUPS = "ProcessGroup._set_group_name", "_world.pg_map"
PROFILER = "autograd._profiler_enabled"
SUFFIXES = "_tensor_str._add_suffixes"


@contextmanager
def torch_without(
    names: str, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> Iterator[labkit.Lab]:
    """Start two ranks with a torch that has renamed some names before labkit looked at it."""
    *others, last = startup.PRELOAD
    preload = (*others, "tests.support.hide_torch_name", last)
    monkeypatch.setattr(startup, "PRELOAD", preload)
    monkeypatch.setenv(VARIABLE, names)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with labkit.start(2) as lab:
        yield lab


def works(lab: labkit.Lab) -> None:
    """Talk in every way, and look at what came of it."""
    run_cell(lab, "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x)")
    assert [x.item() for x in lab["x"]] == [3, 3]
    run_cell(lab, "y = torch.ones(1) * rank\ndist.send(y, 1) if rank == 0 else dist.recv(y, 0)")
    assert [y.item() for y in lab["y"]] == [0, 0]
    run_cell(lab, "dist.monitored_barrier()\npair = dist.new_group([0, 1])\ndist.barrier(pair)")
    lab.reset()
    run_cell(lab, "dist.all_reduce(x)")
    assert [x.item() for x in lab["x"]] == [6, 6]


def said(lab: labkit.Lab, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the start has said, and see that the status says the same."""
    sentences = [
        line.removeprefix("labkit: ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("labkit: ")
    ]
    assert repr(lab.status()).splitlines()[3:] == sentences
    assert all(
        f"<p>{s.replace(chr(39), '&#x27;')}</p>" in lab.status().to_html() for s in sentences
    )
    return sentences


def hangs(lab: labkit.Lab, code: str) -> None:
    """Run a cell that can never end: nobody says so, and the stop button ends it."""
    timer = threading.Timer(1.5, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_cell(lab, code)
        assert timer.finished.is_set()
    finally:
        timer.cancel()


SKIP = "if rank == 0:\n    dist.all_reduce(x)"
NO_SEND = "if rank == 1:\n    dist.recv(x, 0)"


def test_without_the_recorder_messages_are_still_watched(monkeypatch, capsys):
    with torch_without(RECORDER, monkeypatch) as lab:
        sentence = f"{TORCH} {RECORDER}: deadlocks in collectives are not named."
        assert said(lab, capsys) == [sentence]
        works(lab)
        with pytest.raises(Deadlock, match="rank 1 waits for rank 0"):
            run_cell(lab, NO_SEND)
        hangs(lab, SKIP)
        works(lab)


def test_ranks_out_of_step_are_still_put_in_step_without_the_recorder(monkeypatch):
    with torch_without(RECORDER, monkeypatch) as lab:
        run_cell(lab, "x = torch.ones(1)\ndist.all_reduce(x)")
        with pytest.raises(labkit.RankError, match="formed the process group anew"):
            run_cell(lab, "w = None\nif rank:\n    w = dist.all_reduce(x, async_op=True)\n1 / rank")
        works(lab)


def test_a_recorder_that_the_user_switched_off_is_told_too(monkeypatch, capsys):
    with torch_without("", monkeypatch, TORCH_FR_BUFFER_SIZE="0") as lab:
        assert said(lab, capsys) == [
            "TORCH_FR_BUFFER_SIZE=0 switches off torch's flight recorder: "
            "deadlocks in collectives are not named."
        ]
        works(lab)


def test_without_sends_collectives_are_still_watched(monkeypatch, capsys):
    with torch_without(MESSAGES, monkeypatch) as lab:
        sentences = said(lab, capsys)
        assert [s.partition(": ")[2] for s in sentences] == [
            "deadlocks of sends and receives are not named.",
            "goals and forbidden calls of exercises are not checked.",
        ]
        works(lab)
        with pytest.raises(Deadlock, match="rank 0 waits for rank 1"):
            run_cell(lab, SKIP)
        hangs(lab, f"w = dist.all_reduce(x, async_op=True) if rank else None\n{NO_SEND}")
        works(lab)


def test_without_the_names_of_groups_no_deadlock_is_named(monkeypatch, capsys):
    with torch_without(BIRTHS, monkeypatch) as lab:
        assert said(lab, capsys) == [f"{TORCH} {BIRTHS}: deadlocks are not named."]
        works(lab)
        hangs(lab, NO_SEND)
        works(lab)


def test_what_a_timeline_does_not_need_is_told_and_the_rest_works(monkeypatch, capsys):
    with torch_without(f"{PROFILER} {GROUPS} {SUFFIXES}", monkeypatch) as lab:
        lost = "lab.timeline does not see that a profiler of torch runs already"
        timelines = f"{TORCH} {PROFILER}: {lost}."
        devices = f"{TORCH} {SUFFIXES}: each rank shows its tensors on a GPU with their device"
        sentences = said(lab, capsys)
        assert timelines in sentences
        assert any(sentence.startswith(devices) for sentence in sentences)
        assert "ranks 0–1: 1 × barrier" in repr(lab.timeline("dist.barrier()"))
        outcomes = run_cell(lab, "torch.empty(1, device='meta')")
        assert results(outcomes) == ["tensor(..., device='meta', size=(1,))"] * 2
        works(lab)
        with pytest.raises(Deadlock, match="rank 0 waits for rank 1"):
            run_cell(lab, SKIP)


def test_what_is_not_counted_fails_nobody(monkeypatch, capsys):
    twice = (
        "def average_gradients(model):\n"
        "    for p in model.parameters():\n"
        "        for _ in range(2):  # one is allowed\n"
        "            y = p.grad.clone()\n"
        "            dist.all_reduce(y)\n"
        "        p.grad = y / world_size\n"
    )
    with torch_without(MESSAGES, monkeypatch) as lab:
        (_, uncounted) = said(lab, capsys)
        run_cell(lab, twice)
        labkit.check("00-1")
        lines = capsys.readouterr().out.splitlines()
        assert lines[-2] == uncounted
        assert "00-1 passed." in lines[-1]
