"""Processes that a worker of torchrun starts: those that wait forever for a store are told
why."""

from __future__ import annotations

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit import RankDied
from labkit.wire.processes import free_port

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shell(shell: InteractiveShell) -> InteractiveShell:
    """Return a shell with the magics, as ``%load_ext labkit`` gives them."""
    labkit.load_ipython_extension(shell)
    return shell


#: What each process does; ``{{port}}`` is one for each worker.
WORK = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def main(rank, size, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
    {before}
    dist.init_process_group("gloo", rank=rank, world_size=size{more})
    x = torch.ones(1)
    dist.all_reduce(x)
    print(x.item())
    dist.destroy_process_group()
if __name__ == "__main__":
    port = {port} + int(os.environ["RANK"])
    {start}
"""
SPAWN = "mp.spawn(main, args=(2, port), nprocs=2)"
FORK = (
    "ps = [mp.get_context('fork').Process(target=main, args=(i, 2, port)) for i in range(2)]\n"
    "    for p in ps: p.start()\n"
    "    for p in ps: p.join()\n"
    "    assert not any(p.exitcode for p in ps)"
)


def run(shell: InteractiveShell, start: str, before: str = "pass", more: str = "") -> None:
    text = WORK.format(start=start, before=before, more=more, port=free_port())
    shell.run_cell_magic("torchrun", "--standalone --nproc-per-node=2", text)


@pytest.mark.parametrize("start", [SPAWN, FORK], ids=["mp.spawn", "fork"])
def test_a_store_that_nobody_serves_is_one_sentence(
    shell: InteractiveShell, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RankDied) as caught:
        run(shell, start)
    told = re.sub(r"\s+", " ", "".join([str(caught.value), *capsys.readouterr()]))
    assert re.search(r"has started this process \(In\[\d+\], line \d+: (mp\.spawn|for p in)", told)
    assert "that nobody serves" in told
    assert "Take one launcher: torchrun without mp.spawn" in told
    assert "frame #" not in told
    if start is SPAWN:
        assert "(ProcessRaisedException: A worker of torchrun" in str(caught.value)


ALONE = {
    "a store of their own": {"before": "del os.environ['TORCHELASTIC_USE_AGENT_STORE']"},
    "tcp://": {"more": ', init_method=f"tcp://127.0.0.1:{port}"'},
}


@pytest.mark.parametrize("how", ALONE)
@pytest.mark.parametrize("start", [SPAWN, FORK], ids=["mp.spawn", "fork"])
def test_processes_that_serve_their_store_themselves_are_left_alone(
    shell: InteractiveShell, start: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(shell, start, **ALONE[how])
    assert "2.0" in capsys.readouterr().out


def test_a_store_of_the_scripts_own_may_come_when_it_likes(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is served after the other process has begun to look for it."""
    before = (
        "from labkit.base import times; times.STORE_SERVED = times.Bound(0.0)\n"
        "    store = dist.TCPStore('localhost', port, 2, rank == 0)\n"
        "    return print('met', store.host == 'localhost')"
    )
    run(shell, SPAWN, before=before)
    assert "met True" in capsys.readouterr().out
