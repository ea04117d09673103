"""Exercise 04-2: find local ranks from host names, where no launcher has counted them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch.distributed as dist

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, rank_simulated
from .launched import launched

#: Two names, of which one is the beginning of the other.
FIRST, SECOND = "node1", "node10"
LABELS = ("1 rank on the first node", "ranks placed in turn", "1 rank on the last node")


def placements(world_size: int) -> tuple[list[str], ...]:
    """Return the hosts of all ranks in each case."""
    others = world_size - 1
    return (
        [FIRST] + [SECOND] * others,
        [(FIRST, SECOND)[rank % 2] for rank in range(world_size)],
        [SECOND] * others + [FIRST],
    )


def trial(answer: Callable[[str], Sequence[int]], here: Here) -> list[Any]:
    """Ask in each case, in a group of all ranks whose launcher sets no local rank."""
    with launched(RANK=here.rank, WORLD_SIZE=here.world_size), mock.patch.dict(os.environ):
        for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            os.environ.pop(name, None)
        dist.init_process_group()
        found = [answer(hosts[here.rank]) for hosts in placements(here.world_size)]
    return [list(pair) if isinstance(pair, tuple) else pair for pair in found]


def counted(hosts: Sequence[str], rank: int) -> tuple[int, int]:
    """Return local rank and local world size of a rank."""
    return hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank])


def _cases(
    rank: int, world_size: int, count: Callable[[Sequence[str], int], tuple[int, int]] = counted
) -> list[list[int]]:
    return [list(count(hosts, rank)) for hosts in placements(world_size)]


def expected(world_size: int) -> list[list[list[int]]]:
    return [_cases(rank, world_size) for rank in range(world_size)]


def _gives(count: Callable[[Sequence[str], int], tuple[int, int]]) -> Predicate:
    """Return the predicate of ranks that count in another way."""
    return rank_simulated(lambda rank, n: _cases(rank, n, count))


def _local_rank(number: Callable[[Sequence[str], int], int]) -> Predicate:
    """Return the predicate of ranks that count their local ranks in another way, whatever they
    give as the second number."""
    return rank_simulated(
        lambda rank, n: [number(hosts, rank) for hosts in placements(n)],
        part=lambda pairs: [pair[0] for pair in pairs],
    )


EXERCISE = Exercise(
    id="04-2",
    title="Find the local rank",
    answer="local_numbers",
    trial=trial,
    expected=expected,
    entries=LABELS,
    goals=(Goal("collectives", exactly=lambda n: len(LABELS)),),
    setup="import os",
    mistakes=(
        Mistake(
            "This launcher sets no LOCAL_RANK and no LOCAL_WORLD_SIZE. Let the ranks tell one "
            "another the names of their hosts.",
            raises=r"^KeyError: '?LOCAL_",
        ),
        Mistake(
            "You return the rank, which counts all processes. Count only those before it whose "
            "host is the same.",
            when=_local_rank(lambda hosts, rank: rank),
        ),
        Mistake(
            "You start at 1: count the ranks before this one, without itself.",
            when=_local_rank(lambda hosts, rank: counted(hosts, rank)[0] + 1),
        ),
        Mistake(
            "You subtract the first rank of the node. That is right if the ranks of a node are "
            "consecutive, and they need not be: count those before this one on the same host.",
            when=_local_rank(lambda hosts, rank: rank - hosts.index(hosts[rank])),
        ),
        Mistake(
            "rank % size is right if all nodes have equally many ranks, and those of a node are "
            "consecutive. Count the ranks before this one on the same host.",
            when=_local_rank(lambda hosts, rank: rank % counted(hosts, rank)[1]),
        ),
        Mistake(
            "That is the number of the node. The local rank is the number of this process among "
            "those of its node.",
            when=_local_rank(lambda hosts, rank: list(dict.fromkeys(hosts)).index(hosts[rank]))
            | _local_rank(lambda hosts, rank: sorted(set(hosts)).index(hosts[rank])),
        ),
        Mistake(
            "The second number is that of all processes. Count those on this host.",
            when=_gives(lambda hosts, rank: (counted(hosts, rank)[0], len(hosts))),
        ),
        Mistake(
            "The two numbers are exchanged: return the local rank, then the number of processes "
            "on this host.",
            when=_gives(lambda hosts, rank: counted(hosts, rank)[::-1]),
        ),
        Mistake(
            f"{FIRST!r} is contained in {SECOND!r}, which is another host: compare whole names.",
            when=_gives(
                lambda hosts, rank: (
                    sum(hosts[rank] in other for other in hosts[:rank]),
                    sum(hosts[rank] in other for other in hosts),
                )
            ),
        ),
        Mistake(
            "The numbers are right, but one call of all_gather_object brings all names: count both "
            "numbers in the same list.",
            missed="collectives",
        ),
    ),
    hints=(
        "Each rank knows only its own host. Which collective brings the names of all ranks to "
        "every rank?",
        "Fill a list of world_size items by dist.all_gather_object(hosts, host). Item r is then "
        "the host of rank r.",
        "hosts.count(host) is the number of processes on this host. For the local rank, count in "
        "hosts[:rank] only.",
    ),
)
