"""What a blocked rank says that it waits for."""

from __future__ import annotations

import time

import pytest

from labkit.runtime import control, recovery
from labkit.wire.requests import AskSample
from tests.support.cells import inside, run_cell, send_cell
from tests.support.events import PATIENT, until

#: A cell in which rank 1 (of 4) blocks, and what it says.
WAITS = {
    "a collective": (
        "dist.all_reduce(torch.ones(2))",
        {"kind": "collective", "call": "all_reduce"},
    ),
    "a root": (
        "dist.broadcast(torch.ones(2), 3)",
        {"kind": "collective", "call": "broadcast", "root": 3},
    ),
    "a destination in the group's own numbers": (
        "dist.gather(torch.ones(1), None, group_dst=2)",
        {"kind": "collective", "call": "gather", "root": 2},
    ),
    "an object": (
        "dist.all_gather_object([None] * 4, 1)",
        {"kind": "collective", "call": "all_gather_object"},
    ),
    "an asynchronous one, later": (
        "work = dist.barrier(async_op=True); work.wait()",
        {"kind": "collective", "call": "wait"},
    ),
    "a Work without a number": (
        "dist.reduce_scatter_tensor(torch.ones(1), torch.ones(4))",
        {"kind": "collective", "call": "reduce_scatter_tensor"},
    ),
    "DDP's constructor": (
        "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))",
        {"kind": "collective", "call": "DistributedDataParallel"},
    ),
    "a send": (
        "dist.send(torch.ones(1), 2, tag=5)",
        {"kind": "send", "peer": 2, "tag": 5, "number": 1, "me": 1, "call": "send"},
    ),
    "a receive": (
        "dist.recv(torch.ones(1), 0)",
        {"kind": "recv", "peer": 0, "tag": 0, "number": 1},
    ),
    "a receive from any": ("dist.recv(torch.ones(1))", {"kind": "recv_any", "peer": -1}),
    "a monitored barrier": ("dist.monitored_barrier()", {"kind": "monitored_barrier", "number": 1}),
}

#: Cells in which it is busy or sleeps, but waits for no other rank; they end when they are ended.
NO_WAITS = {
    "sleep": "import time; time.sleep(1000)",
    "computing": "while True: pass",
    "a limit of its own": (
        "from datetime import timedelta\ndist.irecv(torch.ones(1), 0).wait(timedelta(seconds=50))"
    ),
    "sleep with a collective under way": (
        "import time; work = dist.barrier(async_op=True); time.sleep(1000)"
    ),
    "a read of a pipe, with a collective under way": (
        "import os; r, w = os.pipe(); work = dist.barrier(async_op=True)\n_ = os.read(r, 1)"
    ),
}
#: Seconds in which a wait that is none would be described: it is in two tenths.
MOMENT = 1.0


def sample(lab):
    """Return what rank 1 says of itself."""
    return control.ask(inside(lab).cluster, {1: AskSample()}, PATIENT)[1]


def blocked(lab, code):
    """Run a cell on rank 1 and return what the rank says of itself when it waits."""
    sent = send_cell(lab, f"#px In[7]\n{code}\n", [1])
    answers = []
    until(
        lambda: answers.append(sample(lab)) or answers[-1].state == "waiting",
        instead=lambda: answers[-1],
    )
    return sent, answers[-1]


@pytest.fixture
def lab(lab4):
    lab4.reset()
    return lab4


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_described(lab, name):
    code, expected = WAITS[name]
    sent, answer = blocked(lab, code)
    try:
        assert answer.state == "waiting"
        assert vars(answer.wait).items() >= {**expected, "where": "In[7], line 2"}.items()
    finally:
        recovery.end(inside(lab).cluster, sent.busy, [1])
    assert sent.busy() == []


def test_a_peer_of_a_sub_group_is_named_by_its_rank_in_the_world(lab):
    run_cell(lab, "pair = dist.new_group([1, 3])")
    sent, answer = blocked(lab, "dist.recv(torch.ones(1), group=pair, group_src=1)")
    recovery.end(inside(lab).cluster, sent.busy, [1])
    assert [key[1] for key, _ in answer.wait.options] == [(1, 3)]
    assert (answer.wait.peer, answer.wait.me) == (3, 0)


@pytest.mark.parametrize("name", NO_WAITS)
def test_what_is_no_wait_for_another_rank(lab, name):
    sent = send_cell(lab, f"#px In[7]\n{NO_WAITS[name]}\n", [1])
    until(lambda: sample(lab).state == "computing")  # the cell has begun
    deadline = time.monotonic() + MOMENT
    while time.monotonic() < deadline:
        answer = sample(lab)
        assert (answer.state, answer.wait) == ("computing", None)
        time.sleep(0.05)
    recovery.end(inside(lab).cluster, sent.busy, [])
    assert sent.busy() == []
