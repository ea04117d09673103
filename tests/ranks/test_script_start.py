"""A learner's script under torchrun, as the check of an exercise starts it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from labkit.course.script_start import StartFailed, Trained, start, start_nodes

pytestmark = pytest.mark.slow

SECONDS = 60.0
GROUP = """
import os
import sys
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
TRAIN = """
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.full((2, 1), 1.0 + step + rank)
    optimizer.zero_grad()
    model(x).sum().backward()
    dist.all_reduce(model.weight.grad)
    optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), sys.argv[1])
"""


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "told").mkdir()
    yield
    left = [p for p in psutil.Process().children(recursive=True) if "mine.py" in _line(p)]
    assert not left


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def started(
    text: str, seconds: float = SECONDS, kill: tuple[int, int] | None = None
) -> list[Trained]:
    """Start a script on two processes."""
    Path("mine.py").write_text(text)
    return start(Path("mine.py"), 2, ["a.pt"], Path("told"), seconds, kill)


def test_what_the_processes_tell() -> None:
    ranks = started(GROUP + TRAIN)
    assert [len(rank.steps) for rank in ranks] == [4, 4]
    assert ranks[0].steps[1] == ranks[1].steps[0] != ranks[0].steps[0]  # the same two rows
    assert [rank.saved for rank in ranks] == [[str(Path("a.pt").resolve())] * 4, []]
    assert ranks[0].weights.shape == (2,)
    assert "LABKIT_TRAINING" not in os.environ


def test_a_process_that_is_killed_ends_the_run() -> None:
    ranks = started(GROUP + TRAIN, kill=(1, 3))
    assert [rank.held for rank in ranks] == [False, True]
    assert len(ranks[1].steps) == 2
    assert ranks[1].weights is None


def test_an_error_is_told_with_its_lines() -> None:
    with pytest.raises(StartFailed) as caught:
        started("def f(x):\n    return x / 0\nf(1)\n")
    failed = caught.value.failed
    assert (failed.name, failed.lines) == ("ZeroDivisionError", ("f(1)", "return x / 0"))
    assert "ended with exit code 1 (ZeroDivisionError: division by zero)" in caught.value.notes[0]
    assert caught.value.notes[1:] == [
        "  mine.py, line 3:  f(1)",
        "  mine.py, line 2:  return x / 0",
    ]


def test_an_exit_is_told_with_its_code() -> None:
    with pytest.raises(StartFailed) as caught:
        started("import sys\nsys.exit(3)\n")
    assert (caught.value.failed.name, caught.value.failed.message) == ("Died", "exit code 3")


def test_a_deadlock_is_named() -> None:
    with pytest.raises(StartFailed) as caught:
        started(GROUP + "if rank == 0:\n    dist.barrier()\nelse:\n    dist.recv(torch.ones(1))")
    assert caught.value.failed.name == "Deadlock"
    assert "barrier" in caught.value.waited


def test_a_script_that_does_not_end_is_ended() -> None:
    with pytest.raises(StartFailed) as caught:
        started("import time\ntime.sleep(1000)\n", 6.0)
    assert caught.value.failed.name == "TimedOut"


def on_nodes(text: str, seconds: float = SECONDS) -> list[Trained]:
    """Start a script on two nodes with a process each; kill rank 1 before its third step."""
    Path("mine.py").write_text(text)
    return start_nodes(Path("mine.py"), ["a.pt"], Path("told"), seconds, kill=(1, 3))


def test_a_process_that_is_killed_on_the_second_node_is_started_again_with_the_other() -> None:
    ranks = on_nodes(GROUP + TRAIN)
    # The first lives: two steps and what rank 0 did while rank 1 waited to be killed; then four.
    assert len(ranks[1].steps) == 2 + 4
    assert len(ranks[0].steps) in (2 + 4, 3 + 4)
    assert ranks[1].held
    assert ranks[1].saved == []
    assert len(ranks[0].saved) >= 6


def test_a_script_that_fails_again_on_the_nodes_is_an_error_of_its_own() -> None:
    slip = "if os.environ['TORCHELASTIC_RESTART_COUNT'] != '0':\n    raise KeyError('epochs')\n"
    with pytest.raises(StartFailed, match="KeyError"):
        on_nodes(GROUP + slip + TRAIN)
