"""Programs that are slow but correct: never called a deadlock, and their results are right."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.cells import results, run_cell

pytestmark = pytest.mark.slow


@dataclasses.dataclass(frozen=True)
class Program:
    """A cell for four ranks, and what its last line must be on each."""

    name: str
    code: str
    results: tuple[str, ...]


SUM = ("10.0",) * 4

PROGRAMS = [
    Program(
        "one rank computes for a minute while the others wait",
        "import time\nx = torch.tensor([rank + 1.0])\nif rank == 3:\n"
        "    end = time.monotonic() + 60\n    while time.monotonic() < end:\n"
        "        torch.ones(300, 300) @ torch.ones(300, 300)\ndist.all_reduce(x)\nx.item()",
        SUM,
    ),
    Program(
        "rank 0 evaluates and writes a checkpoint for thirty seconds",
        "import os, tempfile, time\nx = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\n"
        "if rank == 0:\n    end = time.monotonic() + 30\n"
        "    with tempfile.TemporaryDirectory() as d:\n"
        "        while time.monotonic() < end:\n"
        "            torch.save(torch.ones(1_000_000), os.path.join(d, 'checkpoint.pt'))\n"
        "            os.sync()\n            time.sleep(0.5)\ndist.barrier()\nx.item()",
        SUM,
    ),
    Program(
        "ranks arrive one after the other",
        "import time\nx = torch.tensor([rank + 1.0])\ntime.sleep(1.2 * rank)\ndist.all_reduce(x)\n"
        "time.sleep(1.2 * (3 - rank))\ndist.barrier()\nx.item()",
        SUM,
    ),
    Program(
        "a chain of messages, each rank slow",
        "import time\nx = torch.zeros(1)\nif rank:\n    dist.recv(x, rank - 1)\ntime.sleep(1)\n"
        "x += rank + 1\nif rank < 3:\n    dist.send(x, rank + 1)\nx.item()",
        ("1.0", "3.0", "6.0", "10.0"),
    ),
    Program(
        "a pipeline of three hundred asynchronous all_reduces behind a slow rank",
        "import time\nxs = [torch.tensor([rank + 1.0]) for _ in range(300)]\nif rank == 1:\n"
        "    time.sleep(3)\nworks = [dist.all_reduce(x, async_op=True) for x in xs]\n"
        "for work in works:\n    work.wait()\nsum(x.item() for x in xs) / 300",
        SUM,
    ),
    Program(
        "an asynchronous all_reduce is started first and waited for last",
        "import time\nx = torch.tensor([rank + 1.0])\nif rank != 2:\n"
        "    work = dist.all_reduce(x, async_op=True)\ntime.sleep(2)\nif rank == 2:\n"
        "    work = dist.all_reduce(x, async_op=True)\nwork.wait()\nx.item()",
        SUM,
    ),
    Program(
        "two sub-groups at different speeds, then all together",
        "import time\na, b = dist.new_group([0, 1]), dist.new_group([2, 3])\n"
        "own = a if rank < 2 else b\nx = torch.tensor([rank + 1.0])\nif rank == 3:\n"
        "    time.sleep(3)\ndist.all_reduce(x, group=own)\nif rank in (0, 2):\n    pass\nelse:\n"
        "    x.zero_()\ndist.all_reduce(x)\nx.item()",
        SUM,
    ),
    Program(
        "one sub-group works on while the other has ended its cell",
        "import time\na = dist.new_group([0, 1])\nx = torch.tensor([rank + 1.0])\nif rank < 2:\n"
        "    for _ in range(3):\n        time.sleep(0.7 * rank)\n        dist.barrier(group=a)\n"
        "x.item()",
        ("1.0", "2.0", "3.0", "4.0"),
    ),
    Program(
        "a sender whose receiver is late, and a receiver from any",
        "import time\nx = torch.tensor([rank + 1.0])\nif rank == 0:\n    time.sleep(2)\n"
        "    for _ in range(3):\n        y = torch.zeros(1)\n        dist.recv(y)\n        x += y\n"
        "else:\n    dist.send(x, 0)\nx.item()",
        ("10.0", "2.0", "3.0", "4.0"),
    ),
    Program(
        "a pipeline in both directions with isend and irecv",
        "import time\nx, y = torch.tensor([rank + 1.0]), torch.zeros(1)\n"
        "right, left = (rank + 1) % 4, (rank - 1) % 4\nfor step in range(3):\n"
        "    time.sleep(0.5 if rank == step else 0)\n"
        "    works = [dist.isend(x, right), dist.irecv(y, left)]\n    [w.wait() for w in works]\n"
        "    x = y.clone()\nx.item()",
        ("2.0", "3.0", "4.0", "1.0"),
    ),
    Program(
        "DDP with one slow rank in every step",
        "import time\ntorch.manual_seed(0)\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))\n"
        "for step in range(4):\n    time.sleep(0.8 if rank == step else 0)\n"
        "    model(torch.full((1, 4), rank + 1.0)).sum().backward()\n"
        "    grad = model.module.weight.grad.clone()\n    model.zero_grad()\n"
        "grad.mean().item() * 4",
        SUM,
    ),
    Program(
        "a monitored barrier and an object gathered behind a slow rank",
        "import time\nif rank == 2:\n    time.sleep(2)\ndist.monitored_barrier()\n"
        "out = [None] * 4\nif rank == 1:\n    time.sleep(2)\n"
        "dist.all_gather_object(out, rank + 1.0)\nsum(out)",
        SUM,
    ),
    Program(
        "a wait with a time limit that runs out, and is survived",
        "from datetime import timedelta\nimport time\ng = dist.new_group([0, 1])\n"
        "x = torch.tensor([rank + 1.0])\nlate = None\nif rank == 0:\n"
        "    work = dist.irecv(torch.zeros(1), 1)\n    try:\n"
        "        work.wait(timedelta(seconds=2))\n    except RuntimeError:\n        late = True\n"
        "x.item() if late is None else -1.0",
        ("-1.0", "2.0", "3.0", "4.0"),
    ),
    Program(
        "a thread of the cell brings what the main threads wait for",
        "import threading, time\nx = torch.tensor([rank + 1.0])\ndef later():\n    time.sleep(2)\n"
        "    dist.send(torch.ones(1), 1)\nif rank == 0:\n    t = threading.Thread(target=later)\n"
        "    t.start()\n    dist.recv(x, 1)\nelif rank == 1:\n    dist.recv(torch.zeros(1), 0)\n"
        "    dist.send(torch.tensor([7.0]), 0)\nx.item()",
        ("7.0", "2.0", "3.0", "4.0"),
    ),
    Program(
        "more calls than the recorder keeps, after one that somebody waits for",
        "import time\nx, y = torch.tensor([rank + 1.0]), torch.ones(1)\nown = dist.new_group([1])\n"
        "if rank == 1:\n    work = dist.all_reduce(x, async_op=True)\n"
        "    for _ in range(300):\n        dist.all_reduce(y, group=own)\nelse:\n"
        "    time.sleep(3 if rank == 2 else 0)\n    dist.all_reduce(x)\n"
        "x.item() if rank != 1 else 10.0",
        SUM,
    ),
    Program(
        "a receive from any takes another rank's message",
        "import time\nx = torch.ones(1)\nif rank == 0:\n    time.sleep(0.5)\n    dist.send(x, 1)\n"
        "elif rank == 1:\n    dist.recv(x)\n    dist.recv(x, 2)\n    dist.recv(x)\n"
        "elif rank == 2:\n    dist.send(x, 1)\n    time.sleep(3)\n    dist.send(x, 1)\nx.item()",
        ("1.0",) * 4,
    ),
    Program(
        "a large all_reduce that takes its time",
        "x = torch.full((20_000_000,), rank + 1.0)\nfor _ in range(2):\n    dist.all_reduce(x)\n"
        "    x /= 4\nx = x * 1.6\ntorch.unique(x).item()",
        ("4.0",) * 4,
    ),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_a_slow_program_is_no_deadlock(lab4, program):
    outcomes = run_cell(lab4, f"#px In[7]\n{program.code}\n")
    assert tuple(results(outcomes)) == program.results
    lab4.reset()  # a wait that ran out of time has closed a connection
