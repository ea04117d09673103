"""``lab.messages()`` is what the last cell has sent, and nothing that it has not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import labkit
from labkit.runtime.messages import Message
from labkit.wire.state import Missing

from ..support.cells import inside, run_cell

#: Each rank sends to its right neighbour, twice; the line of the send is the fifth.
RING = """#px In[1]
right, left = (rank + 1) % world_size, (rank - 1) % world_size
for _ in range(2):
    x, y = torch.full((3,), float(rank)), torch.empty(3)
    sent = dist.isend(x, right)
    dist.recv(y, left)
    sent.wait()
"""
#: Rank 2 begins, so the order is neither that of the ranks nor that of the numbers.
BACKWARDS = """
x = torch.zeros(1, dtype=torch.int64)
if rank < 2:
    dist.recv(x, rank + 1)
if rank > 0:
    dist.send(x, rank - 1, tag=0)
"""
#: Nobody receives what rank 0 sends to rank 2.
DEADLOCK = """
x = torch.zeros(1)
if rank == 0:
    dist.send(x, 1)
    dist.send(x, 2)
elif rank == 1:
    dist.recv(x, 0)
    dist.recv(x, 2)
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(3) as lab:
        yield lab


def ends(lab: labkit.Lab) -> list[tuple[int, int]]:
    return [(message.sender, message.receiver) for message in lab.messages()]


def test_what_the_last_cell_sent(lab: labkit.Lab) -> None:
    run_cell(lab, RING)
    assert sorted(ends(lab)) == sorted(2 * [(0, 1), (1, 2), (2, 0)])
    assert lab.messages()[0]._replace(sender=0, receiver=1) == Message(
        0, 1, 3, "float32", 12, 0, "In[1], line 5"
    )
    assert lab["rank"] == [0, 1, 2]  # to look at a variable is no cell
    assert len(lab.messages()) == 6
    run_cell(lab, "dist.all_reduce(torch.ones(1))")
    assert lab.messages() == []


def test_the_order_is_that_of_sending(lab: labkit.Lab) -> None:
    run_cell(lab, BACKWARDS)
    assert ends(lab) == [(2, 1), (1, 0)]


def test_of_a_cell_that_failed_there_is_what_arrived(lab: labkit.Lab) -> None:
    with pytest.raises(labkit.Deadlock):
        run_cell(lab, DEADLOCK)
    assert ends(lab) == [(0, 1)]
    run_cell(lab, "x")
    assert lab.messages() == []


def test_where_torch_hides_the_record_it_says_so(
    lab: labkit.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = Missing("torch 9", ("ProcessGroup.send",), "nobody counts", feature="messages")
    monkeypatch.setattr(inside(lab).cluster, "missing", [hidden])
    with pytest.raises(labkit.LabError, match=r"torch 9 hides ProcessGroup\.send"):
        lab.messages()
