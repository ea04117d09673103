"""%%torchrun names workers that block forever, as %%px does, and no others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit import Deadlock, RankDied, SuspectedDeadlock
from labkit.base.errors import Interrupted
from labkit.runtime import torchrun_watch
from tests.support.events import press_stop

pytestmark = pytest.mark.slow

HEAD = "import os, threading, time\nimport torch\nimport torch.distributed as dist\n"
#: The last line before a fault: from here on it is certain, but for the time that the calls take.
#: It stands behind the group, or in the body where calls that take long come first.
MARK = "open(f\"{os.environ['LABKIT_MARKS']}/{os.environ['RANK']}\", 'w').close()\n"
INIT = (
    "dist.init_process_group('gloo')\n"
    "rank, size = dist.get_rank(), dist.get_world_size()\n"
    "x = torch.ones(1)\n"
)
#: Where the body begins: the magic's line is the first.
BODY = 2 + len(HEAD.splitlines()) + len(INIT.splitlines())
#: Seconds in which nothing may be said of those that only wait long.
PATIENCE = 3.0


@pytest.fixture(scope="module")
def shell(shell: InteractiveShell) -> InteractiveShell:
    """Return a shell with the magics, as ``%load_ext labkit`` gives them."""
    labkit.load_ipython_extension(shell)
    return shell


def run(shell: InteractiveShell, text: str, workers: int = 2, options: str = "") -> None:
    line = f"--standalone --nproc-per-node={workers} {options}"
    shell.run_cell_magic("torchrun", line, HEAD + text)


@dataclass(frozen=True)
class Fault:
    """A way to break a script, and what the error says of it."""

    name: str
    body: str
    says: tuple[str, ...]  #: patterns of the message
    error: type[Exception] = Deadlock
    init: str = INIT
    workers: int = 2


FAULTS = [
    Fault(
        "a rank skips all_reduce and waits in the next",
        "if rank != 0:\n    dist.all_reduce(x)\ndist.barrier()\ndist.barrier()\n",
        (
            "ranks 1–3 wait in all_reduce",
            f"line {BODY + 1}:  dist.all_reduce",
            "rank 0 waits in bar",
        ),
        workers=4,
    ),
    Fault(
        "a rank skips the last all_reduce and ends",
        "if rank == 0:\n    dist.all_reduce(x)\n",
        ("rank 0 ended with exit code 1", "Cause: rank 1 had ended its script before"),
        RankDied,
    ),
    Fault(
        "both send first",
        "dist.send(x, 1 - rank)\ndist.recv(x, 1 - rank)\n",
        (
            rf"rank 0 waits in send to rank 1 at In\[\d+\], line {BODY}",
            "Let one side receive first",
        ),
    ),
    Fault(
        "a step more under DDP",
        "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
        "for step in range(2 + rank):\n"
        f"    if step == 1:\n        {MARK}"
        "    net(torch.ones(1, 2)).sum().backward()\n"
        "dist.barrier()\n",
        ("rank 0 waits in barrier", "of backward"),
    ),
    Fault(
        "a wrong world size",
        "dist.init_process_group('gloo', world_size=3, rank=int(os.environ['RANK']))\n",
        ("in init_process_group", "world_size=3 is more than the 2 ranks", "Not proved"),
        SuspectedDeadlock,
        init="import sys\n",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named_and_nothing_goes_on(
    shell: InteractiveShell,
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setenv("LABKIT_SUSPECT_SECONDS", "1")
    monkeypatch.setenv("LABKIT_MARKS", str(tmp_path))
    init = fault.init if MARK in fault.body else f"{fault.init.rstrip()}; {MARK}"
    with pytest.raises(fault.error) as caught:
        run(shell, init + fault.body, fault.workers)
    certain = max(mark.stat().st_mtime for mark in tmp_path.iterdir())
    seconds = time.time() - certain
    record_property("seconds from certain to named", round(seconds, 2))
    assert len(list(tmp_path.iterdir())) == fault.workers
    said = str(caught.value)
    for pattern in fault.says:
        assert re.search(pattern, said), said
    if isinstance(caught.value, Deadlock):
        assert type(caught.value) is fault.error
        assert said.endswith("labkit ended torchrun with all its workers.")


SLOW = {
    "a rank is late": f"if rank == 0:\n    time.sleep({PATIENCE})\ndist.all_reduce(x)\n",
    "a thread is late": (
        f"def late():\n    time.sleep({PATIENCE})\n    dist.all_reduce(x)\n"
        "if rank == 0:\n    thread = threading.Thread(target=late)\n"
        "    thread.start()\n    thread.join()\nelse:\n    dist.all_reduce(x)\n"
    ),
    "nobody waits for one that computes": (
        f"end = time.monotonic() + {PATIENCE}\n"
        "while rank == 0 and time.monotonic() < end:\n    sum(range(1000))\n"
        "dist.all_reduce(x)\n"
    ),
}


@pytest.mark.parametrize("program", SLOW)
def test_a_script_that_is_slow_is_none(
    shell: InteractiveShell, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(shell, INIT + SLOW[program] + "print(x.item())\n")
    out, err = capsys.readouterr()
    assert (re.sub(r"\x1b\[[0-9;]*m", "", out), err) == ("ranks 0–1: 2.0\n", "")


def test_a_deadlock_after_a_restart_is_named(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By default torch leaves the addresses of the first attempt in the store.
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    body = (
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n    raise OSError('once')\n"
        "dist.send(x, 1 - rank)\n"
    )
    with pytest.raises(Deadlock, match="ranks 0–1 wait for one another"):
        run(shell, INIT + body, options="--max-restarts=1")


def test_a_script_of_a_file_is_named_by_its_file(
    shell: InteractiveShell, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(HEAD + INIT + "dist.send(x, 1 - rank)\n")
    with pytest.raises(Deadlock, match=rf"at train\.py, line {BODY - 1}:  dist\.send"):
        shell.run_line_magic("torchrun", "--standalone --nproc-per-node=2 train.py")


def test_the_stop_button_says_what_was_suspected(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key that nobody sets, but anybody could.
    monkeypatch.setenv("LABKIT_SUSPECT_SECONDS", "inf")
    body = "dist.distributed_c10d._get_default_store().get('never')\n"
    original = torchrun_watch.Watch.suspicion

    def suspicion(watch: torchrun_watch.Watch) -> object:
        """Press once both workers are suspected."""
        found = original(watch)
        if found is not None and found.case.stuck == {0, 1}:
            press_stop()
        return found

    monkeypatch.setattr(torchrun_watch.Watch, "suspicion", suspicion)
    with pytest.raises(Interrupted) as caught:
        run(shell, INIT + body)
    assert "Suspected deadlock: ranks 0–1 wait for one another." in str(caught.value)
