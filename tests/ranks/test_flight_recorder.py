"""What the flight recorder knows of this rank's groups, and what it has forgotten."""

from __future__ import annotations

import pytest

from labkit.rank.observe import p2p_record
from labkit.runtime import control
from labkit.wire.requests import AskSample
from tests.support.cells import inside, run_cell
from tests.support.events import PATIENT


@pytest.fixture
def lab(lab4):
    lab4.reset()
    run_cell(lab4, "x = torch.ones(2, 3)")
    return lab4


def groups(lab, rank=0):
    answer = control.ask(inside(lab).cluster, {rank: AskSample()}, PATIENT)[rank]
    return {g.key[0]: g for g in answer.groups.values()}


def test_collectives_are_counted_from_one_in_each_group(lab):
    assert groups(lab)["0"].last == 0
    run_cell(lab, "pair = dist.new_group([0, 1])\nfor _ in range(3):\n    dist.all_reduce(x)")
    run_cell(lab, "if rank < 2:\n    dist.barrier(group=pair)")
    seen = groups(lab)
    assert (seen["0"].last, seen["1"].last) == (3, 1)
    assert seen["0"].ranks == (0, 1, 2, 3)
    assert seen["1"].ranks == (0, 1)
    assert "1" not in groups(lab, rank=3)
    newest = seen["0"].entries[3]
    assert (newest.name, newest.shapes, newest.done) == ("all_reduce", ((2, 3),), True)


def test_a_group_that_had_the_same_name_is_another_one(lab):
    run_cell(lab, "dist.all_reduce(x)\ndist.all_reduce(x)")
    lab.reset()
    assert groups(lab)["0"].last == 0
    run_cell(lab, "dist.all_reduce(x)")
    assert groups(lab)["0"].last == 1


def test_messages_are_no_collectives(lab):
    run_cell(lab, "if rank == 0:\n    dist.send(x, 1)\nelif rank == 1:\n    dist.recv(x, 0)")
    seen = groups(lab)["0"]
    assert (seen.last, seen.posted) == (0, {("send", 1, 0): 1})


def test_what_the_recorder_has_forgotten_is_not_known(lab):
    size = int(p2p_record.RECORDER_SIZE)
    run_cell(lab, "dist.barrier()\nown = dist.new_group([rank], use_local_synchronization=True)")
    run_cell(lab, f"for _ in range({size}):\n    dist.all_reduce(x, group=own)")
    assert groups(lab)["0"].last == -1


def test_pending_ones_stay_in_the_answer_behind_many_newer_ones(lab):
    code = (
        "own = dist.new_group([rank], use_local_synchronization=True)\n"
        "work = dist.all_reduce(x, async_op=True) if rank == 0 else None\n"
        "for _ in range(20):\n    dist.all_reduce(x, group=own)"
    )
    run_cell(lab, code)
    ((number, entry),) = groups(lab)["0"].entries.items()
    assert (number, entry.number, entry.done) == (1, 1, False)
