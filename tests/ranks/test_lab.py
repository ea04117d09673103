"""The public API on four real ranks."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit import LabError, RankError
from labkit.runtime import control
from tests.conftest import warm_processes
from tests.support.events import HANG_SECONDS, busy_with, until


def rank_and_size():
    import torch.distributed as dist

    return dist.get_rank(), dist.get_world_size()


def sum_of_ranks():
    import torch
    import torch.distributed as dist

    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    return x


def pids():
    import os

    return os.getpid()


def test_run_returns_in_rank_order(lab4):
    assert lab4.run(rank_and_size) == [(r, 4) for r in range(4)]
    assert lab4.run(rank_and_size, ranks=[3, 1]) == [(1, 4), (3, 4)]


def test_run_passes_arguments_and_closures(lab4):
    offset = 10
    assert lab4.run(lambda a, b=0: a + b + offset, 1, b=2) == [13] * 4


def test_the_group_really_adds_up(lab4):
    assert [x.item() for x in lab4.run(sum_of_ranks)] == [6.0] * 4


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda lab: lab["nope"], "There is no variable 'nope' on ranks 0–3."),
        (lambda lab: lab[0], "lab[…] must name one variable"),
        (lambda lab: lab["a b"], "lab[…] must name one variable"),
        (lambda lab: lab.run(pids, ranks=[4]), "There is no rank 4 here: ranks go from 0 to 3."),
        (lambda lab: lab.run(pids, ranks=[]), "ranks must name at least one rank, got []."),
        (lambda lab: lab.run(pids, ranks=["0"]), "There is no rank '0' here"),
    ],
)
def test_bad_input_is_one_sentence_and_the_lab_works_on(lab4, act, message):
    with pytest.raises(LabError) as caught:
        act(lab4)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert lab4.run(rank_and_size, ranks=[0]) == [(0, 4)]


def test_an_error_on_one_rank_names_it(lab4):
    def fail():
        import torch.distributed as dist

        if dist.get_rank() == 2:
            raise ValueError("two is bad")

    with pytest.raises(RankError) as caught:
        lab4.run(fail)
    assert str(caught.value) == "rank 2: ValueError: two is bad"


def test_a_result_that_cannot_travel_is_an_error_not_a_hang(lab4):
    with pytest.raises(RankError, match="ranks 0–3: TypeError: The result cannot leave"):
        lab4.run(lambda: (_ for _ in ()))


def test_reset_keeps_variables_and_makes_a_new_group(lab4):
    lab4["kept"] = 7
    before = lab4.run(pids)
    lab4.reset()
    assert lab4["kept"] == [7] * 4
    assert lab4.run(pids) == before
    assert [x.item() for x in lab4.run(sum_of_ranks)] == [6.0] * 4


def test_restart_gives_fresh_ranks_and_keeps_the_numbers(lab4):
    lab4["gone"] = 1
    before = lab4.run(pids)
    lab4.restart()
    assert not set(before) & set(lab4.run(pids))
    assert lab4.run(rank_and_size) == [(r, 4) for r in range(4)]
    assert lab4["rank"] == [0, 1, 2, 3]
    with pytest.raises(LabError, match="no variable 'gone'"):
        lab4["gone"]
    # Engine ids move on; the map to ranks is kept.
    assert len(set(lab4.engine_ids)) == 4
    assert min(lab4.engine_ids) > 3


def test_status_says_idle_and_the_table_shows_it(lab4):
    states = lab4.status()
    assert [s.state for s in states] == ["idle"] * 4
    assert [s.pid for s in states] == lab4.run(pids)
    assert {(s.device, s.backend) for s in states} == {("cpu", "gloo")}


def displayed(lab):
    """Return what a notebook stores for a cell that ends in ``lab``."""
    return InteractiveShell().display_formatter.format(lab)[0]


def test_a_notebook_shows_a_lab_as_its_table(lab4):
    shown, table = displayed(lab4), lab4.status()
    assert shown == {"text/plain": repr(table), "text/html": table.to_html()}
    assert shown["text/plain"].splitlines()[0].split() == list(table.HEAD)
    assert shown["text/html"].count("<tr>") == 5


def test_the_name_of_a_lab_asks_nobody(lab4, monkeypatch):
    """So that a log line, a debugger or a failing test never waits for a rank."""

    def fail(*args, **kwargs):
        raise RuntimeError("the ranks were asked")

    monkeypatch.setattr(control, "ask", fail)
    assert repr(lab4) == str(lab4) == f"{lab4}" == "Lab (4 ranks, gloo, cpu)"
    # Shown in a notebook it does ask, and still does not fail.
    assert displayed(lab4) == {"text/plain": "Lab (4 ranks, gloo, cpu)\nthe ranks were asked"}


def test_status_sees_a_busy_rank_and_its_line(lab4, gate):
    view = lab4.client.direct_view(lab4.engine_ids[1])
    result = view.execute(f"#px In[9]\n{gate.wait}", silent=False, block=False)
    try:
        until(lambda: busy_with({0: "idle"}, {1: gate.wait})(lab4.status()), instead=lab4.status)
        state = lab4.status()[1]
        assert (state.where, state.line) == ("In[9], line 2", gate.wait)
    finally:
        gate.open()
        result.get(HANG_SECONDS)


def test_plain_ipyparallel_is_still_there(lab4):
    view = lab4.client.direct_view(lab4.engine_ids)
    assert view.apply_sync(rank_and_size) == [(r, 4) for r in range(4)]
    balanced = lab4.client.load_balanced_view()
    assert balanced.map_sync(lambda x: x * x, range(6)) == [0, 1, 4, 9, 16, 25]


def test_every_rank_draws_its_own_random_numbers(lab4):
    def draw():
        import random

        import numpy as np
        import torch

        return random.random(), np.random.rand(), torch.rand(1, dtype=torch.double).item()

    for drawn in zip(*lab4.run(draw), strict=True):
        assert len(set(drawn)) == 4


def test_two_starts_leave_one_lab():
    first = labkit.start(1)
    second = labkit.start(1)
    try:
        assert second.run(rank_and_size) == [(0, 1)]
        assert len(warm_processes()) == 1
        with pytest.raises(LabError, match=r"This lab was stopped; labkit\.start"):
            first.run(pids)
    finally:
        second.stop()
    second.stop()  # twice is fine
    assert repr(second) == "Lab (stopped)"
    assert displayed(second) == {"text/plain": "Lab (stopped)"}


def test_join_false_leaves_the_group_to_the_learner():
    def is_initialized():
        import torch.distributed as dist

        return dist.is_initialized()

    with labkit.start(2, join=False) as lab:
        assert lab.run(is_initialized) == [False, False]
        assert lab["rank"] == [0, 1]
        lab.reset()  # labkit forms it after all
        assert lab.run(rank_and_size) == [(0, 2), (1, 2)]
