"""Exercise 24-3: give every rank of a node the tensor of its best one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import simulated

CALLS = range(2)


def _nodes(call: int, n: int) -> list[list[int]]:
    """Cut the world into two nodes: in halves, then into the last rank and all others."""
    cut = (n + 1) // 2 if call == 0 else n - 1
    return [node for node in (list(range(cut)), list(range(cut, n))) if node]


def _score(call: int, rank: int) -> float:
    """Return scores of both signs, then scores below zero; the best two of a node are less than 1
    apart."""
    scores = (-0.3, -0.05, 0.2, -0.175) if call == 0 else (-9.8, -8.9, -8.6, -9.2)
    return scores[rank % 4] - rank // 4 / 100


def _held(call: int, rank: int) -> torch.Tensor:
    """Return floats, then whole numbers in rows."""
    if call == 0:
        return torch.tensor([10.0 * rank, 10.0 * rank + 1])
    return torch.tensor([[2**24 + 1 + rank], [-rank]])


def trial(answer: Callable[[torch.Tensor, float, Any], Any], here: Here) -> list[torch.Tensor]:
    """Make every node follow its best rank, with two ways to cut the world."""
    results = []
    for call in CALLS:
        nodes = _nodes(call, here.world_size)
        groups = [dist.new_group(node) for node in nodes]
        (own,) = (g for g, node in zip(groups, nodes, strict=True) if here.rank in node)
        x = _held(call, here.rank).to(here.device)
        answer(x, _score(call, here.rank), own)
        results.append(x)
    return results


def expected(world_size: int) -> list[list[torch.Tensor]]:
    """Choose in one process."""
    return _each(lambda call, rank, node, n: _best(call, node))(world_size)


def _best(call: int, ranks: list[int]) -> int:
    return max(ranks, key=lambda rank: _score(call, rank))


def _each(leader: Callable[[int, int, list[int], int], int]) -> Callable[[int], list[list[Any]]]:
    """Return what every rank holds if it follows ``leader(call, rank, its node, n)``."""

    def held(call: int, rank: int, n: int) -> torch.Tensor:
        node = next(node for node in _nodes(call, n) if rank in node)
        return _held(call, leader(call, rank, node, n))

    return lambda n: [[held(call, rank, n) for call in CALLS] for rank in range(n)]


def _cut(call: int, rank: int, node: list[int], n: int) -> int:
    return max(node, key=lambda r: int(_score(call, r)))


EXERCISE = Exercise(
    id="24-3",
    title="Let every node follow its best rank",
    answer="follow_the_best",
    trial=trial,
    expected=expected,
    entries=("x, the ranks cut in halves", "x, the last rank a node of its own"),
    forbids=("all_gather_object",),
    goals=(Goal("collectives", most=lambda n: 2 * len(CALLS)),),
    mistakes=(
        Mistake(
            "src= takes a global rank, but you pass a place in the group. Use group_src=, or "
            "translate with dist.get_global_rank(node, place).",
            raises=r"not part of group",
        ),
        Mistake(
            "Every rank has what the best of all ranks had, not the best of its node: pass node to "
            "both calls as group=.",
            when=simulated(_each(lambda call, rank, node, n: _best(call, list(range(n))))),
        ),
        Mistake(
            "The tensor for the scores has one element per rank of the world; the node has only "
            "dist.get_world_size(node) ranks.",
            raises=r"invalid tensor size|must be equal to world_size|output tensor size",
        ),
        Mistake(
            "No rank has changed its x: the best rank is known, but it has not sent its tensor.",
            when=simulated(_each(lambda call, rank, node, n: rank)),
        ),
        Mistake(
            "The scores have lost their digits: float scores in a tensor of integers are cut off, "
            "so that ranks with different scores tie. Gather them in a float tensor.",
            when=simulated(_each(_cut)),
        ),
        Mistake(
            "Every node follows its first rank, not its best one.",
            when=simulated(_each(lambda call, rank, node, n: node[0])),
        ),
        Mistake(
            "Every node follows the rank with the lowest score.",
            when=simulated(
                _each(lambda call, rank, node, n: min(node, key=lambda r: _score(call, r)))
            ),
        ),
    ),
    hints=(
        "Two steps: every rank learns all scores of its node, then the best rank broadcasts.",
        "Both calls take group=node. There are dist.get_world_size(node) scores.",
        "The index of the largest score is a place in the group, and broadcast has an argument "
        "for a source that is given so.",
    ),
)
