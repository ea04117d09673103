"""Several processes ask for the full MNIST at the same time."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mnist_mirror import Mirror

DATA = Path(__file__).resolve().parents[2] / "data"

SCRIPT = """
import json, os, sys
import torch.distributed as dist
from torchvision.datasets import MNIST
from labkit import datasets

MNIST.mirrors, MNIST.resources, place, group = json.loads(sys.argv[1])
datasets.COUNTS["full"] = (40, 10)
read, write = os.pipe()
for rank in range(4):
    if os.fork() == 0:
        if group:
            dist.init_process_group("gloo", f"file://{group}", rank=rank, world_size=4)
        counts = [len(datasets.mnist_tensors(train, root=place)[0]) for train in (True, False)]
        os.write(write, f"{counts}\\n".encode())
        sys.stdout.flush()
        if group:
            dist.destroy_process_group()
        os._exit(0)
print("exit codes:", [os.wait()[1] for _ in range(4)])
os.close(write)
print(open(read).read(), end="")
"""


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A server that has a tiny full set."""
    served = Mirror()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("LABKIT_DATA", raising=False)
    yield served
    served.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A data folder with the subset."""
    shutil.copytree(DATA / "MNIST", tmp_path / "data" / "MNIST")
    return tmp_path / "data"


def four_processes(mirrors: list[str], mirror: Mirror, place: Path, group: str) -> list[str]:
    """Let four processes ask for the full set at once; return the lines that they wrote."""
    task = json.dumps([mirrors, mirror.resources, str(place), group])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", SCRIPT, task]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_one_of_four_processes_downloads(place: Path, mirror: Mirror) -> None:
    mirror.delay = 0.2  # long enough for the other three to find the lock taken
    lines = four_processes([mirror.url], mirror, place, group="")
    assert lines.count("[40, 10]") == 4
    assert mirror.gets() == sorted(mirror.packed)


@pytest.mark.slow
def test_four_ranks_without_a_network_agree_and_one_says_so(
    place: Path, mirror: Mirror, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        lines = four_processes([url], mirror, place, group=str(tmp_path / "store"))
        silent.settimeout(0)
        asked = 0
        while True:
            try:
                silent.accept()[0].close()
            except BlockingIOError:
                break
            asked += 1
    assert lines.count("[4000, 1000]") == 4
    assert sum("labkit: this is the MNIST subset" in line for line in lines) == 1
    assert asked == 1, f"{asked} of four processes tried the network"
