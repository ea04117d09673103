"""Forming the process group, and forming it again while somebody else has old ports."""

import pytest

import labkit
from labkit.runtime import process_group
from tests.support.cells import inside, results, run_cell


def address():
    import os

    return os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], os.environ["RANK"]


def test_the_store_is_on_loopback_and_every_rank_knows_it(lab4):
    answers = lab4.run(address)
    assert {host for host, _, _ in answers} == {process_group.LOOPBACK}
    assert len({port for _, port, _ in answers}) == 1
    assert [rank for _, _, rank in answers] == list("0123")


def test_sub_groups_end_with_the_group(lab4):
    def pair():
        import torch
        import torch.distributed as dist

        half = dist.new_group([0, 1])
        x = torch.ones(1)
        if dist.get_rank() < 2:
            dist.all_reduce(x, group=half)
        return x.item()

    assert lab4.run(pair) == [2, 2, 1, 1]
    lab4.reset()
    assert lab4.run(pair) == [2, 2, 1, 1]


def test_a_group_that_failed_on_some_ranks_only_does_not_keep_the_next_from_meeting(tmp_path):
    """Torch names groups by counting, and has counted the failed one on rank 1."""

    def fail():
        import torch.distributed as dist

        if dist.distributed_c10d._world.group_count == 0:
            dist.distributed_c10d._world.group_count = 1

    def meet(path):
        from datetime import timedelta

        import torch
        import torch.distributed as dist

        rank = int(torch.distributed.distributed_c10d._world.group_count)  # 0: names agree
        from IPython import get_ipython

        names = get_ipython().user_ns
        dist.init_process_group(
            "gloo",
            init_method=f"file://{path}",
            rank=names["rank"],
            world_size=names["world_size"],
            timeout=timedelta(seconds=120),
        )
        x = torch.ones(1)
        dist.all_reduce(x)
        return rank, x.item()

    with labkit.start(2, join=False) as lab:
        lab.run(fail, ranks=[1])
        inside(lab).group.rebuild()  # nothing is formed: join=False
        assert lab.run(meet, str(tmp_path / "store")) == [(0, 2.0)] * 2


def test_a_model_that_outlives_its_group_does_not_hang_its_rank():
    """With torch 2.11 it did, with the GIL held: most of these runs, and then for good."""

    def outlive():
        import sys

        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        before = sys.getswitchinterval()
        sys.setswitchinterval(5)  # a thread of gloo that waits for the GIL waits for this one
        for _ in range(30):
            group = dist.new_group()
            model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
            model(torch.ones(2, 4)).sum().backward()
            dist.all_reduce(torch.ones(1), group=group)
            dist.destroy_process_group(group)
            del group, model
        sys.setswitchinterval(before)
        return dist.get_rank()

    with labkit.start(4) as lab:  # the test before this one has stopped the others' lab
        assert lab.run(outlive) == [0, 1, 2, 3]


@pytest.mark.parametrize("ranks", [[1], [0, 1]])
def test_a_rank_that_may_have_too_few_files_is_one_sentence(ranks):
    """Gloo would wait for them, so would the other rank, and so would each later cell."""
    with labkit.start(2) as own:
        code = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))"
        run_cell(own, code, ranks)
        with pytest.raises(labkit.LabError, match="no file descriptor is left") as caught:
            own.reset()
        first = ranks[0]
        assert str(caught.value).startswith(f"rank {first}: ")
        assert f"lab.restart(ranks=[{first}])" in str(caught.value)
        with pytest.raises(labkit.LabError, match="no file descriptor is left"):
            run_cell(own, "rank")
        own.restart(ranks)
        assert (
            results(run_cell(own, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()")) == ["2.0"] * 2
        )
