"""Exercise 16-3: give every rank of a node the tensor of its best one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...answers import body
from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake, Wrong


def _nodes(world_size: int) -> list[list[int]]:
    """Cut the world into two nodes, or one for a single rank."""
    half = (world_size + 1) // 2
    return [node for node in (list(range(half)), list(range(half, world_size))) if node]


def _score(rank: int) -> float:
    return float(7 * rank % 5)


def _held(rank: int) -> torch.Tensor:
    return torch.tensor([10.0 * rank, 10.0 * rank + 1])


def trial(answer: Callable[[torch.Tensor, float, Any], Any], here: Here) -> torch.Tensor:
    """Let every node follow its best rank."""
    rank = here.rank
    groups = [dist.new_group(node) for node in _nodes(here.world_size)]
    (own,) = (g for g, node in zip(groups, _nodes(here.world_size), strict=True) if rank in node)
    x = _held(rank).to(here.device)
    answer(x, _score(rank), own)
    return x


def expected(world_size: int) -> list[torch.Tensor]:
    """Choose in one process."""
    return [_held(max(node, key=_score)) for node in _nodes(world_size) for _ in node]


EXERCISE = Exercise(
    id="16-3",
    title="Let every node follow its best rank",
    answer="follow_the_best",
    trial=trial,
    expected=expected,
    forbids=("all_gather_object",),
    goals=(Goal("collectives", most=lambda n: 2),),
    mistakes=(
        Mistake(
            "src= is a rank of the world, and what you give is a place in the group. Say "
            "group_src=, or ask dist.get_global_rank(node, place).",
            raises=r"not part of group",
            shown_by={
                "counts in the group for src": body("""
                    scores = torch.empty(dist.get_world_size(node), device=device)
                    dist.all_gather_into_tensor(
                        scores, torch.tensor([score], device=device), group=node
                    )
                    dist.broadcast(x, src=int(scores.argmax()), group=node)
                """),
            },
        ),
        Mistake(
            "Every rank has what the best rank of the whole world had: hand node to both calls "
            "as group=.",
            when=lambda yours, expected, n: (
                len(_nodes(n)) > 1 and same(yours, [_held(max(range(n), key=_score))] * n)
            ),
            shown_by={
                "asks the whole world": body("""
                    scores = torch.empty(world_size, device=device)
                    dist.all_gather_into_tensor(scores, torch.tensor([score], device=device))
                    dist.broadcast(x, src=int(scores.argmax()))
                """),
            },
        ),
        Mistake(
            "There is room for as many scores as the world has ranks; the node has "
            "dist.get_world_size(node).",
            raises=r"invalid tensor size|must be equal to world_size|output tensor size",
            shown_by={
                "makes room for the world": body("""
                    scores = torch.empty(world_size, device=device)
                    dist.all_gather_into_tensor(
                        scores, torch.tensor([score], device=device), group=node
                    )
                    dist.broadcast(x, group_src=int(scores.argmax()), group=node)
                """),
            },
        ),
        Mistake(
            "Nobody has changed: the best one is known, but its tensor stays where it is.",
            when=lambda yours, expected, n: same(yours, [_held(r) for r in range(n)]),
            shown_by={
                "leaves it at the scores": body("""
                    scores = torch.empty(dist.get_world_size(node), device=device)
                    dist.all_gather_into_tensor(
                        scores, torch.tensor([score], device=device), group=node
                    )
                    return scores.argmax()
                """),
            },
        ),
        Mistake(
            "Every node follows its first rank, not its best one.",
            when=lambda yours, expected, n: same(
                yours, [_held(node[0]) for node in _nodes(n) for _ in node]
            ),
            shown_by={"follows the first": body("dist.broadcast(x, group_src=0, group=node)")},
        ),
    ),
    also_wrong={
        "lets objects do it": Wrong(
            body("""
                pairs = [None] * dist.get_world_size(node)
                dist.all_gather_object(pairs, (score, x), group=node)
                x.copy_(max(pairs, key=lambda pair: pair[0])[1])
            """),
            says="forbidden: all_gather_object",
        ),
    },
    another=body("""
        best = torch.tensor([score], device=device)
        dist.all_reduce(best, op=dist.ReduceOp.MAX, group=node)
        if score < best:
            x.zero_()
        dist.all_reduce(x, group=node)
    """),
    hints=(
        "Two steps: every rank of the node learns all its scores, then the best one broadcasts.",
        "Gather the scores with group=node, into a tensor of dist.get_world_size(node); its "
        "argmax counts within the group.",
        "dist.all_gather_into_tensor(scores, torch.tensor([score], device=device), group=node);"
        " dist.broadcast(x, group_src=int(scores.argmax()), group=node).",
    ),
)
