"""A trial leaves the ranks in step, whatever its answer has left undone."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
import torch
from torch._C._distributed_c10d import ProcessGroup

import labkit
from labkit.course import catalogue, check
from labkit.rank.observe import flight_recorder
from labkit.rank.torch_internals import collectives, groups, trial_groups
from labkit.rank.trial import call_counter, trial
from labkit.runtime import control
from tests.support.average import AVERAGE
from tests.support.cells import inside, run_cell

EXCHANGE = "t = torch.zeros(1)\nif rank == 0: dist.send(t + 5, 1)\nif rank == 1: dist.recv(t, 0)"


def group_of(lab: labkit.Lab) -> list[str]:
    """Return what tells a group from the one before: the port of its store."""

    def port() -> str:
        return os.environ["MASTER_PORT"]

    return lab.run(port)


@pytest.mark.parametrize(
    ("body", "same_group"),
    [
        # both ends are posted, and dropped before the message has come
        ("dist.isend(torch.ones(1), right)\n    dist.irecv(torch.zeros(1), left)", True),
        # both are waited for
        (
            "a, b = dist.isend(torch.ones(1), right), dist.irecv(torch.zeros(1), left)\n"
            "    a.wait(), b.wait()",
            True,
        ),
        # nobody receives
        ("dist.isend(torch.ones(1), right) if rank == 0 else None", False),
    ],
    ids=["dropped", "waited for", "not received"],
)
def test_messages_of_a_trial_do_not_reach_the_next_cell(
    lab4: labkit.Lab, body: str, same_group: bool
) -> None:
    places = "right, left = (rank + 1) % world_size, (rank - 1) % world_size"
    for _ in range(5):
        before = group_of(lab4)
        run_cell(lab4, f"def neighbour():\n    {places}\n    {body}\n    return right")
        check.examine(replace(catalogue.find("00-3"), forbids=()))
        assert (group_of(lab4) == before) == same_group
        run_cell(lab4, EXCHANGE)
        assert lab4["t"][1].item() == 5


#: What an answer does with a group that it makes -> how many are there after three checks.
GROUPS = {
    "used and dropped": ("dist.barrier(group=dist.new_group())", 0),
    "of some ranks": ("g = dist.new_group([0, 2])\n    if rank in (0, 2): dist.barrier(g)", 0),
    "kept": ("kept.append(dist.new_group())", 3),
    "kept until the next": ("kept[:] = [dist.new_group()]", 1),
    "made once": ("kept[:] = kept or [dist.new_group()]", 1),
    "beside a mesh that failed": (
        "try: dist.init_device_mesh('cpu', (2, 3))\n"
        "    except Exception as error: kept.append(error)\n"
        "    dist.barrier(group=dist.new_group())",
        0,
    ),
    "of a mesh that is kept": ("kept.append(dist.init_device_mesh('cpu', (2, 2)))", 6),
}


def left_at_last() -> int:
    """Count a rank's groups after a further look: at that of the check's end, the last barrier may
    not have been done on a busy machine."""
    while flight_recorder.pending():
        time.sleep(0.01)
    trial_groups.destroy_unused((), ())
    return len(groups.groups())


@pytest.mark.parametrize(("body", "left"), GROUPS.values(), ids=list(GROUPS))
def test_groups_that_nobody_can_use_any_more_are_gone(
    lab4: labkit.Lab, body: str, left: int
) -> None:
    """Each has threads, of which one wakes up a hundred times a second for as long as it is there.
    One that the answer keeps can still be used."""
    lab4.reset()
    run_cell(lab4, f"kept = []\ndef neighbour():\n    {body}\n    return (rank + 1) % world_size")
    for _ in range(3):
        assert check.examine(replace(catalogue.find("00-3"), forbids=()))[1].name == "passed"
    assert lab4.run(left_at_last) == [1 + left] * 4
    run_cell(
        lab4,
        "for one in kept:\n"
        "    groups = [one] if isinstance(one, dist.ProcessGroup) else []\n"
        "    for group in getattr(one, 'get_all_groups', lambda: groups)():\n"
        "        dist.barrier(group)\n"
        "kept.clear()",
    )


def test_a_group_with_a_sum_that_is_not_done_is_left(lab4: labkit.Lab) -> None:
    """To destroy it would wait for the sum, which may never be done: also if it was held before."""

    lab4.reset()
    run_cell(
        lab4,
        "from labkit.rank.torch_internals import groups, trial_groups\n"
        "kept, counts = [dist.new_group()], []\n"
        "dist.barrier()\n"  # a rank may still make the group when others destroy theirs
        "name = kept[0].group_name\n"
        "trial_groups.destroy_unused(kept, ())\n"
        "kept.clear()\n"
        "for busy in ({name}, ()):\n"
        "    trial_groups.destroy_unused([], busy)\n"
        "    counts.append(len(groups.groups()))",
    )
    assert lab4["counts"] == [[2, 1]] * 4


ASK = "def average_of_all(x):\n    dist.all_reduce(x)\n    return x / {}"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ASK.format("world_size"), "passed"),
        (
            ASK.format("(4 if len(dist.get_process_group_ranks(None)) == 4 else world_size)"),
            "passed",
        ),
        (ASK.format("sum([1 for _ in range(world_size)][-4:])"), "passed"),
        (ASK.format("4"), "one size"),
        (ASK.format("len([0, 1, 2, 3])"), "one size"),
        ("SIZE = 4\n" + ASK.format("SIZE"), "one size"),
        # three ranks wait for one that is not there
        (
            "def average_of_all(x):\n    everyone = [x.clone() for _ in range(4)]\n"
            "    dist.all_gather(everyone, x)\n    return sum(everyone) / world_size",
            "one size",
        ),
    ],
)
def test_an_answer_that_fits_one_number_of_ranks_is_found(
    lab4: labkit.Lab, code: str, name: str
) -> None:
    """And a right one that has a 4 for another reason passes; the lab is as it was."""
    before = group_of(lab4)
    for _ in range(2):
        run_cell(lab4, code)
        result, verdict = check.examine(AVERAGE)
        assert verdict.name == name
        assert [count["collectives"] for count in result.counts if count] == [1] * 4
        facts = (
            "(world_size, dist.get_world_size(), int(os.environ['WORLD_SIZE']), dist.get_rank())"
        )
        run_cell(lab4, f"import os\nfacts = {facts}")
        assert lab4["facts"] == [(4, 4, 4, rank) for rank in range(4)]
        run_cell(
            lab4, "group = dist.new_group()\nx = torch.ones(1)\ndist.all_reduce(x, group=group)"
        )
        assert lab4["x"] == [4.0] * 4
    assert group_of(lab4) == before


def test_an_answer_that_hangs_on_fewer_ranks_is_named(lab4: labkit.Lab) -> None:
    run_cell(
        lab4,
        "def average_of_all(x):\n"
        "    dist.all_reduce(x)\n"
        "    if world_size != 4 and rank: dist.recv(x.clone(), rank - 1)\n"
        "    return x / 4",
    )
    assert check.examine(AVERAGE)[1].name == "one size"
    run_cell(lab4, "x = torch.ones(1)\ndist.all_reduce(x)")
    assert lab4["x"] == [4.0] * 4


def test_an_interrupt_does_not_reach_the_next_request(lab4: labkit.Lab) -> None:
    """What interrupts a trial must not end what cleans up after it."""
    cluster, everyone = inside(lab4).cluster, range(4)
    view = cluster.client.direct_view([place.engine for place in cluster.places])
    for _ in range(10):
        control.send_signal(cluster, everyone, "SIGINT")
        assert view.apply_sync(time.sleep, 0.08) == [None] * 4


def test_what_labkit_asks_meanwhile_is_not_forbidden(lab4: labkit.Lab) -> None:
    """Where an answer waits, a rank is asked for its number: the answer did not ask for it."""
    run_cell(lab4, "def neighbour():\n    if rank: dist.barrier()\n    return 1")
    for _ in range(3):
        result, verdict = check.examine(replace(catalogue.find("00-3"), forbids=("get_rank",)))
        assert result.forbidden == []
        assert verdict.name == "Deadlock", verdict


def test_a_batch_is_a_batch_under_a_mode_of_torch_functions(lab4: labkit.Lab) -> None:
    run_cell(
        lab4,
        """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

def neighbour():
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    with Mode():
        ops = [dist.P2POp(dist.irecv, torch.zeros(1), left)]
        ops.append(dist.P2POp(dist.isend, torch.ones(1), right))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    return right
""",
    )
    exercise = replace(catalogue.find("00-3"), forbids=("isend", "irecv"))
    assert check.examine(exercise)[0].forbidden == []
    forbidden = check.examine(replace(exercise, forbids=("batch_isend_irecv",)))[0].forbidden
    assert set(forbidden) == {"batch_isend_irecv"}


def test_a_message_without_a_work_is_counted_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a batch NCCL gives one Work for all messages, at its end."""

    class Group:
        def send(self, tensors: object, peer: int, tag: int) -> None:
            return None

    monkeypatch.setattr(collectives, "owners", lambda: [Group])
    monkeypatch.setattr(call_counter, "current", call_counter.Count())
    with call_counter.counting((), {}) as count:
        assert Group().send([torch.ones(3)], 1, 0) is None
    assert count.numbers == {"messages sent": 1, "bytes sent": 12, "collectives": 0}
    assert trial.end(wait=True).arrived


@pytest.mark.usefixtures("cold")
def test_an_answer_may_be_the_first_to_use_an_optimizer() -> None:
    """Its import of torch._dynamo reads attributes of the operators that a trial counts. (Ranks
    from the zygote have it, with torchvision.)"""
    with labkit.start(2) as lab:
        run_cell(
            lab,
            "def neighbour():\n"
            "    import sys\n"
            "    assert 'torch._dynamo' not in sys.modules\n"
            "    p = torch.nn.Parameter(torch.ones(1))\n"
            "    p.grad = torch.ones(1)\n"
            "    torch.optim.SGD([p], lr=1.0).step()\n"
            "    return (rank + 1) % world_size",
        )
        _, verdict = check.examine(catalogue.find("00-3"))
        assert verdict.name == "passed"


def test_what_was_replaced_is_put_back_though_it_is_interrupted() -> None:
    def interrupt_once() -> None:
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    interrupted: list[bool] = []
    original = dict(vars(ProcessGroup))
    count = call_counter.counting(("all_reduce",), {})
    with count:
        assert dict(vars(ProcessGroup)) != original
        call_counter._undo.insert(len(call_counter._undo) // 2, interrupt_once)
        with pytest.raises(KeyboardInterrupt):
            call_counter.restore()
        assert interrupted
        assert not call_counter._undo
    assert dict(vars(ProcessGroup)) == original
