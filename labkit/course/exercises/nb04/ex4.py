"""Exercise 04-4: list the groups inside nodes and across them, as a device mesh makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated

Groups = list[list[int]]
#: What is asked: numbers of nodes and of processes on each.
ASKED = ((2, 2), (2, 4), (4, 2), (3, 5), (1, 3), (3, 1))


def trial(answer: Callable[[int, int], tuple[Groups, Groups]], here: Here) -> list[Any]:
    return [answer(nodes, per_node) for nodes, per_node in ASKED]


def inside(nodes: int, per_node: int) -> Groups:
    """Return the ranks of each node, which are consecutive."""
    return [list(range(node * per_node, (node + 1) * per_node)) for node in range(nodes)]


def across(nodes: int, per_node: int) -> Groups:
    """Return the ranks with each local rank: one per node, ``per_node`` apart."""
    return [list(range(local, nodes * per_node, per_node)) for local in range(per_node)]


def expected() -> list[Any]:
    return [(inside(*sizes), across(*sizes)) for sizes in ASKED]


def _gives(wrong: Callable[[int, int], Any]) -> Predicate:
    """Return the predicate of ``wrong(nodes, per_node)`` for every grid."""
    return simulated(lambda n: [wrong(*sizes) for sizes in ASKED])


EXERCISE = Exercise(
    id="04-4",
    title="List the groups of a grid",
    answer="grid_groups",
    trial=trial,
    expected=expected,
    where="notebook",
    entries=tuple(f"grid_groups{sizes}" for sizes in ASKED),
    mistakes=(
        Mistake(
            "The two lists are exchanged: return the groups inside nodes first, then the groups "
            "across nodes.",
            when=_gives(lambda m, k: [across(m, k), inside(m, k)]),
        ),
        Mistake(
            "You list local ranks, which are the same on every node. A group is a list of ranks: "
            "node 1 starts with rank per_node.",
            when=_gives(lambda m, k: [[list(range(k))] * m, across(m, k)])
            | _gives(lambda m, k: [[list(range(k))] * m, [[local] * m for local in range(k)]]),
        ),
        Mistake(
            "Your groups across nodes have neighbouring ranks, most of which are on one node. "
            "Take one rank from each node: they are per_node apart.",
            when=_gives(lambda m, k: [inside(m, k), inside(k, m)]),
        ),
        Mistake(
            "Nodes and processes per node are exchanged: there are `nodes` groups inside nodes, "
            "with `per_node` ranks each.",
            when=_gives(lambda m, k: [inside(k, m), across(k, m)]),
        ),
        Mistake(
            "You number the processes in turn, one on each node. The picture numbers all "
            "processes of node 0 first, then those of node 1.",
            when=_gives(lambda m, k: [across(k, m), inside(k, m)]),
        ),
        Mistake(
            "One of the two lists is missing: return a pair, the groups inside nodes and the "
            "groups across nodes.",
            when=_gives(inside) | _gives(across),
        ),
    ),
    hints=(
        "Look at the picture of section 1. Which ranks are on one node? Which have the same local "
        "rank?",
        "Node i starts with rank i * per_node. Two ranks with the same local rank on neighbouring "
        "nodes are per_node apart.",
        "Build the rows first: [[i * per_node + k for k in range(per_node)] for i in range(nodes)]."
        " zip(*rows) turns rows into columns.",
    ),
)
