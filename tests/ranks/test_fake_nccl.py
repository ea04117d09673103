"""Gloo with NCCL's semantics does what it says, and labkit follows.

It proves nothing about NCCL itself: see ``tests.support.fake_nccl``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import labkit
from labkit import Deadlock, Interrupted
from labkit.runtime.control import survey
from labkit.runtime.diagnosis import Ending
from labkit.runtime.follow import finish
from tests.support.cells import finish_cell, inside, results, run_cell, send_cell
from tests.support.events import Gate, busy_with, until
from tests.support.on_fake_nccl import start_on_fake_nccl

pytestmark = pytest.mark.usefixtures("alarmed")

#: Looks at the main thread from another one, and lets rank 1 come once the main thread has stood
#: in a wait for so many looks. What it waits for was given to the device, in a call that was over.
LOOKER = """
import sys, threading, time
seen, counted, given = [], 0, False
def look():
    global counted, seen
    while counted < 20:
        time.sleep(0.01)
        frame, seen = sys._current_frames()[threading.main_thread().ident], []
        while frame is not None:
            seen.append(frame.f_code.co_name)
            frame = frame.f_back
        counted += given and seen[0] == "wait"
    LET_COME
threading.Thread(target=look).start()
"""


def late(gate: Gate) -> str:
    """Return code that holds rank 1 until rank 0 lets it come."""
    return f"if rank == 1:\n    {gate.wait}\n"


def come(gate: Gate, seconds: float = 0.5) -> str:
    """Return code that lets rank 1 come a moment later."""
    return (
        "import threading\n"
        f"def come(): {gate.code_to_open}\n"
        f"if rank == 0: threading.Timer({seconds}, come).start()\n"
    )


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with start_on_fake_nccl(2) as started:
        yield started


def values(lab: labkit.Lab, code: str) -> list[object]:
    """Run a cell, and read what its last line shows on each rank."""
    return [ast.literal_eval(shown or "None") for shown in results(run_cell(lab, code))]


# -- calls --------------------------------------------------------------------------------------


# Where rank 0 opens the gate, its calls have returned: rank 1 has not made its own.


def test_a_synchronous_collective_returns_at_once_and_gives_no_work(
    lab: labkit.Lab, gate: Gate
) -> None:
    code = late(gate) + (
        "x = torch.tensor([rank + 1.0])\n"
        "options = dist.AllreduceOptions()\n"
        "options.asyncOp = False\n"
        "given = dist.group.WORLD.allreduce([x], options)\n"
        f"{gate.code_to_open}\n"
        "given, x.item()"
    )
    assert values(lab, code) == [(None, 3.0), (None, 3.0)]


def test_the_work_of_an_asynchronous_one_only_orders(lab: labkit.Lab, gate: Gate) -> None:
    code = late(gate) + (
        "x = torch.tensor([rank + 1.0])\n"
        "work = dist.all_reduce(x, async_op=True)\n"
        "work.wait()\n"
        "at_once = rank == 1 or not work.is_completed()\n"
        f"{gate.code_to_open}\n"
        "at_once, x.item(), work.is_completed()"
    )
    assert values(lab, code) == [(True, 3.0, True)] * 2


# -- looks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look", ["x.item()", "x.tolist()", "x + 1", "print(x)", "x.numpy()", "float(x)", "x[0]"]
)
def test_a_look_blocks_in_c_and_leaves_the_interpreter_free(
    lab: labkit.Lab, look: str, gate: Gate
) -> None:
    run_cell(lab, LOOKER.replace("LET_COME", gate.code_to_open), [0])
    code = late(gate) + (
        "x = torch.tensor([rank + 1.0])\n"
        "dist.all_reduce(x)\n"
        "x.shape, x.dtype, x.numel(), x.is_cuda, x.view(1)\n"
        "given = True\n"
        f"{look}\n"
        "rank or (counted, seen[0], x.item())"
    )
    assert values(lab, code)[0] == (20, "wait", 3.0)


# -- the end of a cell --------------------------------------------------------------------------


def test_a_cell_ends_when_all_that_it_gave_to_the_device_has_ended(
    lab: labkit.Lab, gate: Gate
) -> None:
    run_cell(lab, LOOKER.replace("LET_COME", gate.code_to_open), [0])
    sent = send_cell(lab, "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x); given = True", [0])
    while not (seen := lab.run(lambda: None, ranks=[1]) and results(run_cell(lab, "rank", [1]))):
        pass
    assert seen == ["1"]
    assert not sent.has_replied(0)
    run_cell(lab, f"{late(gate)}x = torch.tensor([2.0])\ndist.all_reduce(x)", [1])
    assert finish_cell(sent).error is None
    assert values(lab, "x.item(), rank == 1 or seen[:2]") == [
        (3.0, ["wait", "finish"]),
        (3.0, True),
    ]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = torch.ones(1)\nif rank == 0:\n    dist.all_reduce(x)\n    print(x)", 3),
        ("y = torch.ones(1)\nif rank == 0:\n    dist.recv(y, 1)\n    y.item()", 3),
    ],
)
def test_a_look_at_what_never_comes_is_named_by_the_line_of_its_call(
    lab: labkit.Lab, code: str, line: int
) -> None:
    run_cell(lab, "kept = rank + 1")
    found = finish_cell(send_cell(lab, code))
    assert isinstance(found.error, Deadlock)
    assert found.ending.case is not None
    assert found.ending.case.stuck == {0}
    assert f"line {line}" in str(found.error)
    assert values(lab, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item(), kept") == [
        (2.0, 1),
        (2.0, 2),
    ]


@pytest.mark.parametrize("look", ["", "\n    x.item()"])
def test_a_wait_for_the_device_is_interrupted(lab: labkit.Lab, look: str) -> None:
    sent = send_cell(lab, "x = torch.ones(1)\nif rank == 0:\n    dist.all_reduce(x)" + look)
    until(lambda: busy_with({0: "waiting"})(survey(inside(lab).cluster)))
    found = finish(sent, Ending("interrupted"), tolerate=True)
    assert isinstance(found.error, Interrupted)
    assert found.ending.still == []
    assert values(lab, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()") == [2.0, 2.0]


def test_a_group_that_is_formed_anew_has_the_semantics(lab: labkit.Lab, tmp_path: Path) -> None:
    """Rank 0 returns from its call, or it would never let rank 1 come."""
    for number, anew in enumerate((lab.reset, lambda: lab.restart(ranks=[1]))):
        anew()
        gate = Gate(tmp_path / str(number))
        again = f"{late(gate)}x = torch.ones(1)\ndist.all_reduce(x)\n{gate.code_to_open}\nx.item()"
        assert values(lab, again) == [2.0] * 2


def test_a_group_for_which_the_program_names_gloo_has_gloos_own(
    lab: labkit.Lab, tmp_path: Path
) -> None:
    run_cell(
        lab, 'x = torch.ones(1)\nmail, other = dist.new_group(backend="gloo"), dist.new_group()'
    )
    call = "(dist.send(x, 0, {0}) if rank else dist.recv(x, 1, {0}))\n"
    first, second = Gate(tmp_path / "1"), Gate(tmp_path / "2")
    blocks = late(first) + come(first) + call.format("mail") + first.is_open
    assert values(lab, blocks) == [True, True]
    run_cell(lab, late(second) + call.format("other") + second.code_to_open)
    error = finish_cell(send_cell(lab, "dist.send(x, 1 - rank, mail)")).error
    assert isinstance(error, labkit.Deadlock)
    assert "send to rank 1" in str(error)


# -- programs that are right --------------------------------------------------------------------


def test_steps_of_ddp_are_those_of_one_process(lab: labkit.Lab) -> None:
    """DDP's reducer calls gloo in C++, beyond these semantics; its loss is looked at."""
    code = (
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "def train(wrap, data, steps=3):\n"
        "    torch.manual_seed(1)\n"
        "    model = wrap(torch.nn.Linear(3, 1))\n"
        "    for _ in range(steps):\n"
        "        model.zero_grad()\n"
        "        loss = model(data).pow(2).mean()\n"
        "        loss.backward()\n"
        "        with torch.no_grad():\n"
        "            for p in model.parameters(): p -= 0.1 * p.grad\n"
        "    return torch.cat([p.detach().flatten() for p in model.parameters()])\n"
        "data = torch.arange(12.0).reshape(4, 3) / 12\n"
        "ours = train(DDP, data[2 * rank : 2 * rank + 2])\n"
        "dist.all_reduce(ours)\n"
        "torch.allclose(ours / 2, train(lambda model: model, data))"
    )
    assert values(lab, code) == [True, True]


def test_the_first_collective_of_a_group_returns_when_all_have_come(gate: Gate) -> None:
    """NCCL connects the ranks then, and spins: labkit sees that no more than a wait."""
    with start_on_fake_nccl(2, connect=True) as lab:
        code = "own = dist.new_group()\n" + late(gate) + come(gate) + (
            "x = torch.tensor([rank + 1.0])\n"
            f"dist.all_reduce(x, group=own)\n{gate.is_open}, x.item()"
        )  # fmt: skip
        assert values(lab, code) == [(True, 3.0)] * 2
        code = "own = dist.new_group()\nif rank == 0:\n    dist.all_reduce(x, group=own)"
        found = finish_cell(send_cell(lab, f"#px In[7]\n{code}\n"))
        assert type(found.error) is Deadlock
        assert "rank 0 waits in all_reduce (float32 [1], collective 1)" in str(found.error)
        assert "In[7], line 4" in str(found.error)
