"""A message that is shorter than its receive's tensor leaves a part of it: both lines are named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import labkit
from tests.support.cells import finish_cell, run_cell, send_cell
from tests.support.on_fake_nccl import start_on_fake_nccl


def start(n: int, fake_nccl: bool) -> labkit.Lab:
    return start_on_fake_nccl(n) if fake_nccl else labkit.start(n)


@pytest.fixture(scope="module", params=[(2, False), (4, False), (2, True)], ids=str)
def lab(request: pytest.FixtureRequest) -> Iterator[labkit.Lab]:
    with start(*request.param) as started:
        yield started


def warnings(lab: labkit.Lab, code: str) -> list[str]:
    """Run a cell; return what it writes to stderr, by rank, of ranks 0 and 1."""
    outcomes = run_cell(lab, f"#px In[7]\nx = torch.full((4,), -1.0)\n{code}")
    assert [o.displays for o in outcomes] == [[]] * len(outcomes)
    assert [o.stderr for o in outcomes[2:]] == [""] * len(outcomes[2:])
    return [o.stderr for o in outcomes[:2]]


def said(sent: int, received: int, count: str = "2 elements") -> list[str]:
    return [
        "",
        f"UserWarning (In[7], line {received}): rank 0 sent {count} of float32 (In[7], line "
        f"{sent}), fewer than the 4 of this receive: the rest keeps its old values.\n",
    ]


SHORT = """
if rank == 0:
    dist.send(torch.ones(2), 1)
elif rank == 1:
    dist.recv(x, 0)
    print(x.tolist())
"""


def test_a_short_message(lab: labkit.Lab) -> None:
    assert warnings(lab, SHORT) == said(5, 7)
    assert warnings(lab, SHORT.replace("ones(2)", "ones(4)")) == ["", ""]
    assert warnings(lab, "pass") == ["", ""]  # and it is not said again
    assert warnings(lab, SHORT) == said(5, 7)


def test_a_batch(lab: labkit.Lab) -> None:
    code = """
if rank < 2:
    mine = torch.ones(4 if rank else 2)
    ops = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, x, 1 - rank)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
"""
    assert warnings(lab, code) == said(7, 7)
    assert warnings(lab, code.replace("4 if rank else 2", "4")) == ["", ""]


def test_from_any_rank(lab: labkit.Lab) -> None:
    code = """
mail = dist.new_group()
if rank == 0:
    dist.send(torch.ones(2), 1, group=mail)
elif rank == 1:
    dist.recv(x, group=mail)
"""
    assert warnings(lab, code) == said(6, 8)


def test_a_function(lab: labkit.Lab, capsys: pytest.CaptureFixture[str]) -> None:
    def exchange(short: bool) -> None:
        import torch
        import torch.distributed as dist

        if dist.get_rank() == 0:
            dist.send(torch.ones(2 if short else 4), 1)
        elif dist.get_rank() == 1:
            dist.recv(torch.zeros(4), 0)

    lab.run(exchange, False)
    assert capsys.readouterr().err == ""
    lab.run(exchange, True)
    assert "rank 0 sent 2 elements of float32" in capsys.readouterr().err


def test_nothing_is_sent_where_nothing_was_posted(lab: labkit.Lab) -> None:
    for code, tells in (("dist.barrier()", False), (SHORT.replace("x", "torch.zeros(4)"), True)):
        sent = send_cell(lab, code)
        assert finish_cell(sent).error is None
        told = [sent.replies[r].labkit_output.messages is not None for r in (0, 1)]
        assert told == [tells, tells]
