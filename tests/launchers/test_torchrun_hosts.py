"""torchrun on several hosts, and what it does when a process or a host is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from labkit import hosts
from tests.support.conda_versions import ROOT
from tests.support.system import needs_hosts

pytestmark = [pytest.mark.slow, needs_hosts()]

JOB = ROOT / "tests" / "support" / "hosts_job.py"
ELASTIC = ROOT / "notebooks" / "scripts" / "elastic.py"
MEETING = ["--rdzv-backend=c10d", "--rdzv-endpoint=h1:29400"]
#: Bits per second of the slow link.
RATE = 20e6
#: What starting torchrun may take where the machine is busy; 5 to 10 s on two idle cores.
START = 90.0


class Output:
    """What a torchrun on a host writes, line by line while it runs."""

    def __init__(self, host: hosts.Host, arguments: list[str]) -> None:
        self.lines: list[str] = []
        # Without the last of these, a node cannot come back once the others have restarted.
        settings = {
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        self._process = host.popen(
            [sys.executable, "-m", "torch.distributed.run", *arguments],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self.lines.append(line.rstrip())

    def wait_for(self, pattern: str, seconds: float, start: int = 0) -> re.Match[str]:
        """Return the first match in the lines from ``start`` on; fail after a time."""
        deadline = time.monotonic() + seconds
        while True:
            ended = not self._reader.is_alive()
            if matches := self.matches(pattern, start):
                return matches[0]
            assert not ended, self._tell(f"it ended without {pattern!r}")
            assert time.monotonic() < deadline, self._tell(f"no {pattern!r} in {seconds:g} s")
            time.sleep(0.02)

    def matches(self, pattern: str, start: int = 0) -> list[re.Match[str]]:
        return [match for line in self.lines[start:] if (match := re.search(pattern, line))]

    def end(self, seconds: float) -> None:
        """Wait for the end, which must be a good one."""
        self._reader.join(seconds)
        assert not self._reader.is_alive(), self._tell(f"not ended in {seconds:g} s")
        assert self._process.wait(START) == 0, self._tell(f"exit code {self._process.returncode}")

    def _tell(self, what: str) -> str:
        return "\n".join([what, *self.lines[-60:]])


@pytest.fixture(scope="module")
def _network() -> Iterator[hosts.Network]:
    with hosts.network(2, rate=f"{RATE:.0f}bit", queue="100ms") as net:
        yield net


@pytest.fixture
def pair(_network: hosts.Network) -> Iterator[hosts.Network]:
    """Two hosts; the link between them is slow until a test has lifted its limit."""
    yield _network
    for host in _network:
        host.kill()


def run_job(pair: hosts.Network, sizes: list[int], folder: Path, *words: str) -> list[dict]:
    """Run the job with so many ranks on each host; return what the ranks say, in their order.

    The sum of all_reduce is compared with the one that this process makes.
    """
    nodes = [
        Output(
            host,
            ["--nnodes=2", f"--nproc-per-node={size}", *MEETING, str(JOB), str(folder), *words],
        )
        for host, size in zip(pair, sizes, strict=True)
    ]
    for node in nodes:
        node.end(2 * START)
    ranks = range(sum(sizes))
    expected = sum(torch.arange(1000) * (rank + 1) for rank in ranks)
    for rank in ranks:
        assert torch.equal(torch.load(folder / f"{rank}.pt"), expected)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in ranks]


def test_two_nodes_and_a_slow_link(pair: hosts.Network, tmp_path: Path) -> None:
    facts = run_job(pair, [2, 2], tmp_path, "lift")
    assert [fact["host"] for fact in facts] == ["h1", "h1", "h2", "h2"]
    assert {fact["master"] for fact in facts} == {"h1"}
    # Whatever the algorithm, 1 MB must leave each host; its first 64 kB pass at once.
    slow, fast = (max(fact[which] for fact in facts) for which in ("slow", "fast"))
    assert slow > 0.9 * 8 * (1_000_000 - 65_536) / RATE
    assert fast < slow / 3


def test_unequal_nodes(pair: hosts.Network, tmp_path: Path) -> None:
    facts = run_job(pair, [3, 4], tmp_path)
    seen = [
        (fact["host"], fact["RANK"], fact["LOCAL_RANK"], fact["LOCAL_WORLD_SIZE"]) for fact in facts
    ]
    assert seen == [
        *[("h1", rank, rank, 3) for rank in range(3)],
        *[("h2", 3 + local_rank, local_rank, 4) for local_rank in range(4)],
    ]
    assert [fact["GROUP_RANK"] for fact in facts] == [0, 0, 0, 1, 1, 1, 1]
    assert {(fact["WORLD_SIZE"], fact["GROUP_WORLD_SIZE"]) for fact in facts} == {(7, 2)}


# -- elastic ------------------------------------------------------------------------------------


def trained(steps: int) -> list[torch.Tensor]:
    """Return the weights after so many steps of ``elastic.py``, trained in one process."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        torch.manual_seed(step)
        x = torch.randn(16, 8, dtype=torch.float64)
        optimizer.zero_grad()
        (net(x) - x.sin().sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    return list(net.state_dict().values())


def load(folder: Path) -> dict:
    return torch.load(folder / "last.pt", weights_only=True)


def assert_near_oracle(folder: Path) -> None:
    """Compare the last checkpoint with one process that has done as many steps."""
    last = load(folder)
    assert not any(name.startswith("module.") for name in last["model"])
    for weights, expected in zip(last["model"].values(), trained(last["done"]), strict=True):
        torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-9)


def test_a_killed_worker_costs_nothing(pair: hosts.Network, tmp_path: Path) -> None:
    folders = [tmp_path / "whole", tmp_path / "disturbed"]
    runs = []
    for host, folder in zip(pair, folders, strict=True):
        folder.mkdir()
        words = ["--standalone", "--nproc-per-node=2", "--max-restarts=3", str(ELASTIC)]
        runs.append(Output(host, [*words, str(folder), "20", "0.1"]))
    whole, disturbed = runs
    victim = disturbed.wait_for(r"step 8 by rank 1 of 2, process (\d+)", START)
    os.kill(int(victim[1]), signal.SIGKILL)
    for run in runs:
        run.end(2 * START)
    ranks = disturbed.matches(r"step (\d+) by rank (\d) of 2, process (\d+)")
    processes = list(dict.fromkeys(match[3] for match in ranks))
    # All of them were replaced, and those that came went on from the last checkpoint.
    assert len(processes) == 4
    assert victim[1] in processes[:2]
    firsts = [next(int(m[1]) for m in ranks if m[3] == process) for process in processes]
    assert firsts[:2] == [1, 1]
    assert firsts[2] == firsts[3] >= 8
    (done,) = disturbed.matches(r"done: 20 steps, loss .*, weights [0-9a-f]{8}$")
    assert [match[0] for match in whole.matches(r"done: .*")] == [done[0]]
    states = [load(folder) for folder in folders]
    for one, other in zip(*(state["model"].values() for state in states), strict=True):
        assert torch.equal(one, other)
    assert_near_oracle(folders[1])


def test_a_node_is_lost_and_returns(pair: hosts.Network, tmp_path: Path) -> None:
    alive = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"
    words = ["--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=10", *MEETING]
    words += [f"--rdzv-conf={alive}", str(ELASTIC), str(tmp_path), "100000", "0.1"]
    first, second = (Output(host, words) for host in pair)
    both = r"step (\d+) by rank 0 of 2"
    first.wait_for(both, START)
    second.wait_for("step .* by rank 1 of 2", START)
    pair[1].kill()
    lost = len(first.lines)
    alone = int(first.wait_for(r"step (\d+) by rank 0 of 1", START, lost)[1])
    # It goes on from the checkpoint; a step that was saved need not have been printed.
    assert alone - int(first.matches(both)[-1][1]) in (1, 2)
    returned = Output(pair[1], words)
    again = int(returned.wait_for(r"step (\d+) by rank 1 of 2", START)[1])
    assert int(first.wait_for(both, START, lost)[1]) >= alone
    assert again > alone
    for host in pair:
        host.kill()
    assert load(tmp_path)["done"] >= again - 1
    assert_near_oracle(tmp_path)
