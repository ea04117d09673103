"""A message that is longer than its receive's tensor ends the receiver: said with both lines."""

from __future__ import annotations

import pytest

import labkit
from labkit import RankDied
from tests.support.cells import run_cell

CASES = {
    "a receive": (
        "if rank == 0:\n    dist.send(torch.ones(8), 1)\nelse:\n    dist.recv(x, 0)",
        "Rank 0 sent 8 elements of float32 at In[7], line 4: dist.send(torch.ones(8), 1); rank 1 "
        "had room for 2 elements of float32 at In[7], line 6: dist.recv(x, 0).",
    ),
    "a handle": (
        "import time\nif rank == 0:\n    dist.isend(torch.ones(3, dtype=torch.float64), 1).wait()\n"
        "else:\n    work = dist.irecv(x, 0)\n    time.sleep(1)\n    work.wait()",
        "Rank 0 sent 3 elements of float64 at In[7], line 5: "
        "dist.isend(torch.ones(3, dtype=torch.float64), 1).wait(); rank 1 had room for 2 elements "
        "of float32 at In[7], line 7: work = dist.irecv(x, 0).",
    ),
    "from any rank, after one that fitted": (
        "y = torch.zeros(4)\nif rank == 0:\n    dist.send(y, 1)\n    dist.send(y, 1)\nelse:\n"
        "    dist.recv(y)\n    dist.recv(x, 0)",
        "Rank 0 sent 4 elements of float32 at In[7], line 6: dist.send(y, 1); rank 1 had room for "
        "2 elements of float32 at In[7], line 9: dist.recv(x, 0).",
    ),
}


@pytest.fixture(scope="module")
def lab():
    with labkit.start(2) as started:
        yield started


@pytest.mark.parametrize("name", CASES)
def test_which_send_and_which_receive_did_not_fit(lab, name):
    code, said = CASES[name]
    with pytest.raises(RankDied) as caught:
        run_cell(lab, f"#px In[7]\nx = torch.zeros(2)\n{code}\n")
    assert "rank 1 ended with signal 6 (SIGABRT)" in str(caught.value)
    assert said in str(caught.value)
    lab.restart(ranks=[1])
