"""The profiler on a rank: its limits, and its clock."""

import pytest

import labkit
from tests.ranks.test_timeline import profiler_is_off
from tests.support.events import LONG, busy_with, stop_pressed


def test_it_stops_by_itself_and_says_so(lab4):
    def shorten(seconds):
        from labkit.base import times

        times.RECORDING = seconds

    lab4.run(shorten, 0.3)
    try:
        timeline = lab4.timeline(
            "import time\n"
            "for _ in range(40):\n    dist.barrier()\n    time.sleep(0.1)\n"
            "ended = True"
        )
    finally:
        lab4.run(shorten, 5.0)
    assert lab4["ended"] == [True] * 4
    assert timeline.notes == [
        "Ranks 0–3: The recording stopped after 0.3 s; the code ran to its end."
    ]
    for rank in range(4):  # of forty, which took four seconds
        seen = [s for s in timeline.spans if s.kind == "communication" and s.rank == rank]
        assert 0 < len(seen) < 40
    assert all(lab4.run(profiler_is_off))


def test_nothing_is_written_to_the_notebook(lab4, capsys):
    lab4.timeline("x = 1")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "")


def test_a_profiler_of_the_learners_own_is_left_alone(lab4):
    def begin():
        import torch

        torch._own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        torch._own.start()

    def end():
        import torch

        torch.ones(1)
        torch._own.stop()
        return any(e.name() == "aten::ones" for e in torch._own.profiler.kineto_results.events())

    lab4.run(begin)
    try:
        with pytest.raises(labkit.LabError, match="A torch profiler runs on this rank already"):
            lab4.timeline("x = 1")
    finally:
        assert all(lab4.run(end))
    lab4.timeline("x = 1")


def test_forward_is_the_outermost_module_and_a_loss_is_part_of_it(lab4):
    timeline = lab4.timeline(
        "from torch import nn\n"
        "net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU()))\n"
        "out = net(torch.ones(2, 3, requires_grad=True))\n"
        "loss = nn.MSELoss()(out, torch.zeros(2, 3))\n"
        "_ = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)\n"
        "torch.autograd.backward(loss)\n",
        ranks=[2],
    )
    found = [(s.kind, s.name) for s in timeline.spans]
    assert found == [
        ("forward", "Sequential"),
        ("forward", "loss"),
        ("backward", "grad"),
        ("backward", "backward"),
    ]
    assert repr(timeline) == "Timeline of rank 2\nrank 2: 1 × forward, 2 × backward"


def test_an_interrupt_leaves_no_profiler(lab4):
    with stop_pressed(busy_with({}, {0: "time.sleep"})), pytest.raises(KeyboardInterrupt):
        lab4.timeline(f"import time\ntime.sleep({LONG})")
    assert all(lab4.run(profiler_is_off))


# -- with labs of their own, which end the one above ----------------------------------------------


@pytest.mark.slow
def test_the_first_recording_has_no_warm_up_in_it():
    """The shortest of three: a warm-up would be in each, a pause of the machine is in one."""

    def first():
        with labkit.start(2) as lab:
            timeline = lab.timeline("x = torch.ones(2); dist.all_reduce(x)")
            return max(timeline.seconds(rank=rank) for rank in (0, 1))

    assert min(first() for _ in range(3)) < 0.5


@pytest.mark.slow
def test_a_lab_without_a_group_has_a_timeline_too():
    with labkit.start(2, join=False) as lab:
        timeline = lab.timeline("from torch import nn\n_ = nn.Linear(2, 2)(torch.ones(2))")
        assert repr(timeline) == "Timeline of ranks 0–1\nranks 0–1: 1 × forward"
