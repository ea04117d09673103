"""Collectives that torch issues in C++ are known by their call: for GPUs, tried here on gloo."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

import labkit
from labkit import Deadlock
from tests.support.cells import finish_cell, results, run_cell, send_cell

MODEL = """\
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from labkit.rank.observe import flight_recorder, unseen_calls

unseen_calls.install()


def make():
    return DDP(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)))
"""
STEP = """\
net = make()
loss = net(torch.randn(4, 3)).sum()
loss.backward()
calls = [unseen_calls.find(e.created) for e in flight_recorder.entries()]
[(e.name, c.name, c.place[1]) for e, c in zip(flight_recorder.entries(), calls) if c]
"""
ONE_LESS = """\
net = DDP(nn.Linear(3, 1))
for _ in range(2 + rank):
    loss = net(torch.randn(4, 3)).sum()
    loss.backward()
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(2) as started:
        run_cell(started, MODEL)
        yield started


def test_what_ddp_issues_is_known_by_the_line_of_its_call(lab: labkit.Lab) -> None:
    for shown in results(run_cell(lab, STEP)):
        assert set(ast.literal_eval(shown or "")) == {
            ("gloo:broadcast", "DistributedDataParallel.forward", 2),
            ("gloo:all_reduce", "backward", 3),
        }


def test_a_wait_within_such_a_call_is_named_as_before(lab: labkit.Lab) -> None:
    found = finish_cell(send_cell(lab, ONE_LESS))
    assert isinstance(found.error, Deadlock), found.error
    assert ") of backward at " in str(found.error)
    assert "line 4:  loss.backward()" in str(found.error)
    assert "fewer training steps" in str(found.error)
