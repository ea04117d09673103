"""What every lab must do whose ranks one of ipyparallel's own launchers has started."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import psutil
import pytest

import labkit
from tests.bench.child import TOKEN as MARK
from tests.bench.child import is_alive, marked
from tests.support.conda_versions import ROOT
from tests.support.events import until

#: A kernel with a lab: one rank computes, the other waits for it in a collective.
KERNEL = """
import json, sys
import labkit
from tests.support import external_lab

lab = labkit.start(2, engines=sys.argv[1], config=json.loads(sys.argv[2]))
lab.run(external_lab.keep_busy, sys.argv[3])
"""


def keep_busy(folder: str) -> None:
    """Report that this rank is at work, and never end."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    Path(folder, f"rank{rank}").touch()
    while rank == 0:
        pass
    dist.all_reduce(torch.ones(1))


def mean_of_ranks() -> float:
    """Add up 1, 2, … over the ranks, then take the mean."""
    import torch
    import torch.distributed as dist

    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    return x.item() / dist.get_world_size()


def ddp_step(rank: int, world_size: int) -> list[float]:
    """Take one step of SGD, each rank on its share of one batch; return the parameters.

    With one rank there is no DDP: what the others must come to.
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    net = DistributedDataParallel(model) if world_size > 1 else model
    inputs, targets = torch.randn(24, 4), torch.randn(24, 3)
    loss = torch.nn.functional.mse_loss(net(inputs[rank::world_size]), targets[rank::world_size])
    loss.backward()
    # By hand: torch.optim would import for seconds on each rank.
    return [x for p in model.parameters() for x in (p - 0.1 * p.grad).flatten().tolist()]


def ask_and_stop() -> float:
    """Make rank 1 ask for a number and open the debugger, while the others wait for it."""
    import torch
    import torch.distributed as dist

    number = 0
    if dist.get_rank() == 1:
        number = int(input("How many? "))
        breakpoint()
    x = torch.tensor([float(number)])
    dist.all_reduce(x)
    return x.item()


def check_questions(lab: labkit.Lab) -> None:
    """Check that the user is asked what a rank asks: ``input()`` and the debugger."""
    asked, answers = [], ["5", "p number", "c"]

    def answer(prompt: object = "") -> str:
        asked.append(prompt)
        return answers.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        patch.setattr(builtins, "input", answer)
        assert lab.run(ask_and_stop) == [5.0] * len(lab)
    assert asked == ["rank 1: How many? ", *["rank 1: ipdb> "] * 2]


def own_step() -> list[float]:
    """Take the step as one rank of the lab."""
    import torch.distributed as dist

    return ddp_step(dist.get_rank(), dist.get_world_size())


def die(rank: int) -> None:
    """Kill one rank; the others wait for it."""
    import signal

    import torch
    import torch.distributed as dist

    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def check_work(lab: labkit.Lab) -> None:
    """Add up and train across the ranks."""
    n = lab.world_size
    assert lab.run(mean_of_ranks) == [(n + 1) / 2] * n
    (expected,) = lab.run(ddp_step, 0, 1, ranks=[0])  # alone; torch is there already
    for parameters in lab.run(own_step):
        assert max(abs(a - b) for a, b in zip(parameters, expected, strict=True)) < 1e-6


def check_start_of_20(lab: labkit.Lab) -> None:
    """Run what notebook 20 runs on every launcher, from its own cells."""
    import torch

    book = nbformat.read(ROOT / "notebooks" / "20_scaling_out.ipynb", as_version=4)
    names: dict[str, Any] = {"__name__": "notebook 20", "n": lab.world_size}
    for cell in book.cells:
        if cell.cell_type == "code" and cell.source.partition("\n\n\ndef ")[2].startswith(
            ("train(wrap", "first_cells()")
        ):
            exec(cell.source, names)
    alone = names["train"](lambda net: net, torch.device("cpu"))
    for total, loss in lab.run(names["first_cells"]):
        assert total == sum(range(lab.world_size + 1))
        assert abs(loss - alone) < 1e-4


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that run."""
    return [process for process in processes if is_alive(process)]


def check_killed_kernel(
    engines: str,
    config: Callable[[str], Mapping[str, Any]],
    folder: Path,
) -> None:
    """Kill a kernel whose ranks are busy; every process of it goes, which none would otherwise."""
    mark = uuid.uuid4().hex
    kernel = subprocess.Popen(
        [sys.executable, "-c", KERNEL, engines, json.dumps(config(mark)), str(folder)],
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
    )
    try:
        until(lambda: len(list(folder.glob("rank*"))) == 2 or kernel.poll() is not None)
        assert kernel.poll() is None, "the lab did not start"
        assert len(marked(mark)) >= 4  # kernel, controller, two ranks
        kernel.kill()
        kernel.wait()
        until(lambda: not marked(mark), instead=lambda: marked(mark))
    finally:
        kernel.kill()
        kernel.wait()
        for process in marked(mark):
            process.kill()
