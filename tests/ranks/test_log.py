"""The log of a start, a deadlock, a death and a stop tells their story; without it, silence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal
import torch, torch.distributed as dist
import labkit

def skip():
    if dist.get_rank() != 2:
        dist.all_reduce(torch.ones(1))

lab = labkit.start(3)
try:
    lab.run(skip)
except labkit.Deadlock:
    print("deadlock")
try:
    lab.run(lambda: os.kill(os.getpid(), signal.SIGKILL), ranks=[1])
except labkit.RankDied:
    print("died")
lab.restart(ranks=[1])
lab.stop()
"""
#: What the log has to say, in this order; those with "debug" only at that level.
STORY = [
    ("info", r"labkit\.base\.log: Python 3\.\S+, torch-labkit \S+, torch \S+, ipyparallel \S+"),
    ("info", r"warm_process: warm process \d+ starts, to import torch"),
    ("info", r"cluster: starts 3 ranks, engines='local'"),
    ("debug", r"fork_server: imported torch in \d+\.\d+ s"),
    ("info", r"warm_process: warm process is ready after \d+\.\d+ s"),
    ("debug", r"warm_process: engine-\S+-0 runs as process \d+"),
    ("debug", r"cluster: every rank is connected after \d+\.\d+ s"),
    ("debug", r"cluster: Place\(rank=2, .* device='cpu', backend='gloo'"),
    ("info", r"cluster: 3 ranks have their places after \d+\.\d+ s"),
    ("info", r"process_group: ranks 0–2 formed a group in .* gloo and a store at 127\.0\.0\.1"),
    ("debug", r"watchdog: say that they wait: rank \d waits in all_reduce \(float32 \[1\]"),
    ("debug", r"watchdog: ended \[2\], proved .*: rank \d waits in all_reduce"),
    ("debug", r"watchdog: after [\d.]+ s, proved \[0, 1\].*: rank 0 waits .*; rank 2 idle"),
    ("info", r"watchdog: declares a deadlock: ranks 0–1 wait for rank 2, which has ended"),
    ("debug", r"follow: what ran on ranks \[0, 1, 2\]: deadlock"),
    ("debug", r"recovery: shuts connections between ranks, per rank: \{0: [1-9]\d*, 1: [1-9]"),
    ("info", r"recovery: freed ranks \[0, 1\]; no answer from \[\]; still busy: \[\]"),
    ("info", r"process_group: the group is broken; free for a new one: ranks 0–2"),
    ("info", r"process_group: ranks 0–2 formed a group"),
    ("info", r"cluster: rank 1 ended with signal 9 \(SIGKILL\)"),
    ("info", r"cluster: replaces rank 1"),
    ("info", r"cluster: the fresh ranks have their places"),
    ("info", r"process_group: ranks 0–2 formed a group"),
    ("info", r"cluster: ends the ranks"),
    ("debug", r"warm_process: sends signal 15 to engine-"),
    ("info", r"warm_process: warm process \d+ has ended with exit code 0"),
    ("info", r"cluster: the ranks have ended"),
]


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    # Without a zygote: what the warm process imports is a part of the story.
    others = {k: v for k, v in os.environ.items() if k not in ("LABKIT_LOG", "LABKIT_ZYGOTE")}
    environment = others | variables
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "deadlock\ndied\n"), done.stderr
    return done


@pytest.mark.parametrize("level", ["debug", "info"])
def test_the_log_tells_the_story(level: str, tmp_path: Path) -> None:
    path = tmp_path / "labkit.log"
    assert run(LABKIT_LOG=f"{level}:{path}").stderr == ""
    lines = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d [\d:]{8}\.\d{3} \d+ labkit\.", line) for line in lines)
    rest = iter(lines)
    for needed, pattern in STORY:
        if needed in ("info", level):
            assert any(re.search(pattern, line) for line in rest), (pattern, lines)
    if level == "info":
        assert not [line for line in lines if "fork_server" in line or "Place(" in line]


def test_without_the_variable_nothing_is_said() -> None:
    assert run().stderr == ""
