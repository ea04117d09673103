"""The group of a collective is known by its Work, whatever form the call has."""

from __future__ import annotations


def homes_of_collectives():
    """Issue every form of every collective in a group of its own; return whose home is unknown."""
    import torch
    import torch.distributed as dist

    from labkit.rank.observe import p2p_record

    group = dist.new_group([0, 1, 2, 3])
    n, me = 4, dist.get_rank()
    x, wide = torch.ones(1), torch.ones(n)
    parts = [torch.ones(1) for _ in range(n)]
    first = parts if me == 0 else None
    options = {"group": group, "async_op": True}
    calls = {
        "all_reduce": lambda: dist.all_reduce(x, **options),
        "broadcast": lambda: dist.broadcast(x, 0, **options),
        "reduce": lambda: dist.reduce(x, 0, **options),
        "all_gather": lambda: dist.all_gather(parts, x, **options),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(wide, x, **options),
        "gather": lambda: dist.gather(x, first, 0, **options),
        "scatter": lambda: dist.scatter(x, first, 0, **options),
        "reduce_scatter": lambda: dist.reduce_scatter(x, parts, **options),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(x, wide, **options),
        "all_to_all_single": lambda: dist.all_to_all_single(wide, torch.ones(n), **options),
        "barrier": lambda: dist.barrier(**options),
    }
    unknown = []
    for name, call in calls.items():
        work = call()
        if p2p_record.homes.get(work) != group.group_name:
            unknown.append(name)
        work.wait()
    return unknown


def test_the_group_of_every_collective_is_known(lab4):
    assert lab4.run(homes_of_collectives) == [[]] * 4
