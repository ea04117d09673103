"""Exercise 15-1: shard a network in groups that are gathered one at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import every_rank

#: Numbers of blocks and width of the networks; rows that the ranks do not share evenly.
CASES = ((3, 6), (1, 5))
#: What the mesh calls its dimension, which the one that torch makes by itself does not.
DIMENSION, ANOTHER = "shards", "over another mesh"
#: Rows of each rank's batch.
ROWS = 4
#: Parts of the first network, and its parameters.
PARTS = CASES[0][0] + 2
PARAMETERS = 4 + 4 * CASES[0][0]


class Net(nn.Module):
    """A linear stem, blocks of two linear layers with a bend between them, and a linear head."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Linear(3, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 9), nn.Tanh(), nn.Linear(9, width))
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)

    def parts(self) -> list[nn.Module]:
        return [self.stem, *self.blocks, self.head]


def _batch(rank: int) -> torch.Tensor:
    return torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(100 + rank))


def _is_whole(p: torch.Tensor) -> bool:
    from torch.distributed.tensor import DTensor

    return not isinstance(p, DTensor)


def _names(p: torch.Tensor) -> Any:
    return p.device_mesh.mesh_dim_names  # type: ignore[attr-defined]


def _watch(net: Net) -> list[list[int]]:
    """Count the parts that are whole at the moments to come: when a part is about to compute, in
    forward and in backward, and between the two."""
    forward: list[int] = []
    between: list[int] = []
    backward: list[int] = []

    def note(moments: list[int]) -> None:
        moments.append(sum(any(map(_is_whole, part.parameters())) for part in net.parts()))

    def before(layer: nn.Module, args: Any) -> None:
        note(forward)

    def after(layer: nn.Module, args: Any, out: torch.Tensor) -> None:
        out.register_hook(lambda gradient: note(backward))

    for part in net.parts():
        first = part[0] if isinstance(part, nn.Sequential) else part
        first.register_forward_pre_hook(before)  # inside: the part's own hooks have run
        part.register_forward_hook(after)  # outside, for the same reason
    net.register_forward_hook(lambda net, args, out: note(between))
    return [forward, between, backward]


def _shard_of(p: torch.Tensor, like: torch.Tensor, here: Here) -> torch.Tensor:
    """Return what a rank should hold of a tensor, if its parameter is sharded."""
    if _is_whole(p):
        return like
    chunks = like.chunk(here.world_size)
    return chunks[here.rank] if here.rank < len(chunks) else like[:0]


def _local(t: torch.Tensor) -> torch.Tensor:
    return t if _is_whole(t) else t.to_local()  # type: ignore[attr-defined]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Shard each network, take a step; tell what was whole, and compare with one process."""
    from torch.distributed.device_mesh import init_device_mesh

    found: list[Any] = []
    mesh = init_device_mesh(here.device.type, (here.world_size,), mesh_dim_names=(DIMENSION,))
    for blocks, width in CASES:
        torch.manual_seed(blocks)
        net = Net(blocks, width).to(here.device)
        alone = copy.deepcopy(net)
        returned = answer(net, mesh)
        if returned is not net:
            found += [False, 0, [], 0, [], False]
            continue
        whole = [name for name, p in net.named_parameters() if _is_whole(p)]
        forward, between, backward = _watch(net)
        net(_batch(here.rank).to(here.device)).square().mean().backward()
        everyone = torch.cat([_batch(r) for r in range(here.world_size)]).to(here.device)
        alone(everyone).square().mean().backward()
        equal = all(
            p.grad is not None
            and q.grad is not None
            and _local(p.grad).allclose(_shard_of(p, q.grad, here), rtol=1e-4, atol=1e-6)
            for p, q in zip(net.parameters(), alone.parameters(), strict=True)
        )
        own = all(_is_whole(p) or _names(p) == (DIMENSION,) for p in net.parameters())
        found += [True if own else ANOTHER, len(whole), forward, between[0], backward, equal]
    return found


def labels(n: int) -> list[str]:
    return [
        f"{what} ({blocks} block{'s' * (blocks > 1)})"
        for blocks, _ in CASES
        for what in (
            "returns net",
            "parameters that are not sharded",
            "parts that are whole when each part computes forward",
            "parts that are whole between forward and backward",
            "parts that are whole when each part computes backward",
            "gradients are those of one process",
        )
    ]


def expected(n: int) -> list[list[Any]]:
    items: list[Any] = []
    for blocks, _ in CASES:
        one_each = [1] * (blocks + 2)
        items += [True, 0, one_each, 0, one_each, True]
    return [items] * n


EXERCISE = Exercise(
    id="15-1",
    title="Stay under the peak",
    answer="shard",
    setup="""
        from torch import nn
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.nn.parallel import DistributedDataParallel as DDP
    """,
    trial=trial,
    expected=expected,
    entries=labels,
    goals=(Goal("collectives", most=lambda n: 3 * sum(blocks + 2 for blocks, _ in CASES)),),
    mistakes=(
        Mistake(
            "shard does not return net. fully_shard changes a module in place and returns it, so "
            "shard the net that was passed, not a copy, and return it.",
            when=every_rank(lambda mine, its: mine[0] is False),
        ),
        Mistake(
            "Parameters are sharded over another mesh than the one that was passed: torch makes "
            "one of all ranks if mesh= is missing. Pass mesh=mesh in every call.",
            when=every_rank(lambda mine, its: mine[0] == ANOTHER),
        ),
        Mistake(
            "Nothing is sharded: every rank holds all parameters all the time. fully_shard(module, "
            "mesh=mesh) shards a module's parameters.",
            when=every_rank(lambda mine, its: mine[1] == PARAMETERS),
        ),
        Mistake(
            "Some parameters are in no group: they are whole on every rank, and their gradients "
            "are this rank's own. Wrap stem, blocks and head, and the net last, which takes what "
            "is left.",
            when=every_rank(lambda mine, its: 0 < mine[1] < PARAMETERS),
        ),
        Mistake(
            "Everything is whole from the first layer on: there is only one group. Call "
            "fully_shard on each part before you call it on the net.",
            when=every_rank(lambda mine, its: mine[2] == [PARTS] * PARTS),
        ),
        Mistake(
            "Parts stay whole after they have computed, so more and more are held until backward. "
            "reshard_after_forward=False does that; and so does the default for a root. Where "
            "fully_shard is not called on the net, each part is a root of its own.",
            when=every_rank(lambda mine, its: mine[2] == list(range(1, PARTS + 1))),
        ),
        Mistake(
            "Some parts are whole while others compute. What only the net's own call has taken is "
            "in its group, which is whole from the beginning of forward to the end; so is a group "
            "of several parts. Give each part a call of its own.",
            when=every_rank(lambda mine, its: max(mine[2]) > 1),
        ),
        Mistake(
            "fully_shard was called from the outside in: the net's group has taken all "
            "parameters, and none is left for its parts. Call it on the parts first.",
            raises=r"^TypeError: Invariant encountered|Cannot concatenate overlapping meshes",
        ),
        Mistake(
            "An nn.ModuleList has no forward, before which its parameters could be gathered: wrap "
            "each of its blocks.",
            raises=r"does not support containers that do not implement forward",
        ),
        Mistake(
            "The result is right, but a step takes more collectives than allowed: each call of "
            "fully_shard makes a group with collectives of its own. Wrap a block as one.",
            missed="collectives",
        ),
    ),
    hints=(
        "Each call of fully_shard makes one group, of the parameters that no earlier call has "
        "taken. How many groups do you need, and which?",
        "One group for stem, one for each block, one for head; the last call is on the net. A "
        "group is freed after forward, unless it is the root's.",
        "A loop over net.stem, all of net.blocks and net.head calls fully_shard(part, mesh=mesh). "
        "Then the net itself. Its group is empty, but now the parts know that they are no roots.",
    ),
)
