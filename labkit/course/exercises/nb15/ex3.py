"""Exercise 15-3: save a sharded training, and load it on other ranks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ...exercise import Exercise, Here, Mistake
from ...mistakes import every_rank, some_rank

#: Columns and rows of the weight: the rows are divided evenly by few world sizes.
COLUMNS, ROWS = 1024, 30
#: Learning rates of the training that is saved, and of what is made to load it.
SAVED_RATE, OTHER_RATE = 0.125, 0.5
#: Bytes of weight and bias, and of Adam's two moments for each.
STATE = 3 * 4 * (COLUMNS + 1) * ROWS
#: Bytes that a file may have beside its shards.
AROUND = 2**15


def _start(seed: int, rate: float) -> tuple[nn.Sequential, Callable[[Any], torch.optim.Optimizer]]:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(COLUMNS, ROWS))
    return net, lambda net: torch.optim.Adam(net.parameters(), lr=rate)


def _sharded(seed: int, rate: float, group: Any, here: Here) -> tuple[nn.Module, Any]:
    """Return a network that is sharded over the ranks of a group, and its optimizer."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    net, optimizer = _start(seed, rate)
    net.to(here.device)
    mesh = DeviceMesh.from_group(group, here.device.type)
    for module in (net[0], net):
        fully_shard(module, mesh=mesh)
    return net, optimizer(net)


def _learn(net: nn.Module, optimizer: torch.optim.Optimizer, device: Any = "cpu") -> None:
    for step in range(2):
        x = torch.linspace(-1, 1 + step, 2 * COLUMNS).view(2, COLUMNS).to(device)
        (net(x) - 0.5).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def _look(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return the first numbers of weight and moments, put together, and the learning rate."""

    def numbers(tensors: Sequence[Any]) -> torch.Tensor:
        found = [t.full_tensor() if hasattr(t, "full_tensor") else t for t in tensors]
        return torch.cat([t.detach().reshape(-1)[:: COLUMNS + 1] for t in found])

    parameters = list(net.parameters())
    state = [optimizer.state.get(p, {}) for p in parameters]
    moments = [
        entry.get(name, torch.zeros_like(p))
        for name in ("exp_avg", "exp_avg_sq")
        for p, entry in zip(parameters, state, strict=True)
    ]
    return [numbers(parameters), 1000 * numbers(moments), optimizer.param_groups[0]["lr"]]


def _groups(n: int) -> list[list[int]]:
    """Return the ranks of each group that loads: all, about half of them, one other."""
    return [list(range(n)), list(range(n))[n - (n + 1) // 2 :], [0]]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Save on all ranks; load on groups of ranks, one after another."""
    everyone = dist.new_group(list(range(here.world_size)))
    groups = [dist.new_group(ranks) for ranks in _groups(here.world_size)]
    shared = [tempfile.mkdtemp() if here.rank == 0 else ""]
    dist.broadcast_object_list(shared, src=0)
    folder = os.path.join(shared[0], "checkpoint")
    net, optimizer = _sharded(0, SAVED_RATE, everyone, here)
    _learn(net, optimizer, here.device)
    answer(folder).save(net, optimizer, everyone)
    dist.barrier()
    found: list[Any] = [_largest(shared[0]) <= STATE // here.world_size + STATE // ROWS + AROUND]
    for number, (ranks, group) in enumerate(zip(_groups(here.world_size), groups, strict=True)):
        if here.rank in ranks:
            net, optimizer = _sharded(1 + number, OTHER_RATE, group, here)
            answer(folder).load(net, optimizer, group)
            found += _look(net, optimizer)
        else:
            found += [None] * 3
        dist.barrier()
    return found


def _largest(folder: str) -> int:
    sizes = [os.path.getsize(os.path.join(at, file)) for at, _, files in os.walk(folder)
             for file in files]  # fmt: skip
    return max(sizes, default=0)


def labels(n: int) -> list[str]:
    items = ["no file is larger than a shard"]
    for ranks in _groups(n):
        name = f"ranks {ranks[0]}–{ranks[-1]}" if len(ranks) > 1 else f"rank {ranks[0]} alone"
        items += [f"{what}, loaded on {name}" for what in
                  ("weight and bias", "1000 × Adam's moments", "learning rate")]  # fmt: skip
    return items


def _look_at(seed: int, rate: float, *, trained: bool) -> list[Any]:
    net, make = _start(seed, rate)
    optimizer = make(net)
    if trained:
        _learn(net, optimizer)
    return _look(net, optimizer)


def expected(n: int) -> list[list[Any]]:
    right = _look_at(0, SAVED_RATE, trained=True)
    return [
        [True] + [x for ranks in _groups(n) for x in (right if rank in ranks else [None] * 3)]
        for rank in range(n)
    ]


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.allclose(b, rtol=1e-4, atol=1e-5)


EXERCISE = Exercise(
    id="15-3",
    title="Load on other ranks",
    answer="Checkpoint",
    setup="""
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    """,
    trial=trial,
    expected=expected,
    entries=labels,
    seconds=60.0,
    mistakes=(
        Mistake(
            "The weights are not those that were saved. dcp.load writes into the tensors of the "
            "state that you pass: pass that of the new network.",
            when=every_rank(lambda mine, its: not _close(mine[1], its[1])),
        ),
        Mistake(
            "The weights are loaded, but Adam's moments are not. An optimizer that has not stepped "
            "has no moments into which anything could be loaded; get_state_dict makes them, "
            "optimizer.state_dict() does not. And save those of the trained one.",
            when=every_rank(lambda mine, its: not _close(mine[2], its[2])),
        ),
        Mistake(
            "Weights and moments are loaded in place, but the learning rate is a number, which "
            "only stands in the state that dcp.load has changed: give the state back with "
            "set_state_dict.",
            when=every_rank(lambda mine, its: mine[3] == OTHER_RATE),
        ),
        Mistake(
            "Ranks of the group wait for ranks outside it, in a collective of the default group. "
            "Pass process_group=group to dcp.load, and call no other collective.",
            stuck=r"waits? in barrier",
        ),
        Mistake(
            "Everything is loaded, but one file is larger than a shard: a rank has gathered what "
            "it may have no memory for. Let each rank write its own shards, with dcp.save.",
            when=some_rank(lambda mine, its: mine[0] is False),
        ),
    ),
    hints=(
        "Both methods begin alike: a dict with the states of net and optimizer, as get_state_dict "
        "gives them. save writes it, load reads into it.",
        "dcp.save and dcp.load take checkpoint_id=, the folder, and process_group=, the ranks that "
        "call them. What else must load do with the states, after they were read?",
        "After dcp.load, set_state_dict(net, optimizer, model_state_dict=…, optim_state_dict=…) "
        "takes the two states from the dict.",
    ),
)
