"""Exercise 20-4: order the ranks so that a ring through them seldom leaves a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import simulated, some_rank

#: What is tried: a name, and the host of a rank among so many.
CASES: tuple[tuple[str, Callable[[int, int], str]], ...] = (
    ("hosts a, b, a, b", lambda rank, n: "ab"[rank % 2]),
    ("hosts a, b, b, a", lambda rank, n: "abba"[rank % 4]),
    ("hosts z, a, a, z", lambda rank, n: "zaaz"[rank % 4]),
    ("hosts n10, n9, n10, n2", lambda rank, n: ("n10", "n9", "n10", "n2")[rank % 4]),
    ("all on one host", lambda rank, n: "a"),
    ("a host for each rank", lambda rank, n: f"h{n - rank}"),
    ("hosts a, a, b, b", lambda rank, n: "aabb"[rank * 4 // max(n, 4)]),
)


class Name(str):
    """A host's name, with the hash that it has in the process of a rank.

    Processes that are started one by one have different hashes of the same text; the ranks of a
    lab, which are forked from one process, would have the same.
    """

    rank = 0

    def __hash__(self) -> int:
        return (str.__hash__(self) % 1013) * (-1) ** self.rank

    def __reduce__(self) -> tuple[type[Name], tuple[str]]:
        return Name, (str(self),)  # where it arrives, it has the hash of that rank


NO_LIST, NOT_ALL = "not a list of ranks", "not every rank once"


def _hosts(host: Callable[[int, int], str], n: int) -> list[str]:
    return [host(rank, n) for rank in range(n)]


def hops(order: Any, hosts: Sequence[str]) -> int | str | None:
    """Count the steps of a ring that leave a host, or say why there is no ring."""
    ranks = range(len(hosts))
    if order is None:
        return None
    if not isinstance(order, list | tuple) or not all(type(rank) is int for rank in order):
        return NO_LIST
    if sorted(order) != list(ranks):
        return NOT_ALL
    return sum(hosts[order[i - 1]] != hosts[order[i]] for i in ranks)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Ask for an order for each case; count its hops, and see whether all ranks have the same."""
    n, Name.rank = here.world_size, here.rank
    results: list[Any] = []
    for _, host in CASES:
        order = answer(Name(host(here.rank, n)))
        every: list[Any] = [None] * n
        dist.all_gather_object(every, order)
        results += [hops(order, _hosts(host, n)), all(other == order for other in every)]
    return results


def _each(order: Callable[[list[str]], list[int]]) -> Callable[[int], list[list[Any]]]:
    """Return what every rank gives if all return ``order(hosts)``."""

    def simulate(n: int) -> list[list[Any]]:
        hosts = [_hosts(host, n) for _, host in CASES]
        return [[item for own in hosts for item in (hops(order(own), own), True)]] * n

    return simulate


def _sorted(hosts: list[str]) -> list[int]:
    return sorted(range(len(hosts)), key=lambda r: hosts[r])


expected = _each(_sorted)


def _places(hosts: list[str]) -> list[int]:
    """Return the place of each rank in the order: its inverse."""
    order = _sorted(hosts)
    return [order.index(r) for r in range(len(hosts))]


def _in_turn(hosts: list[str]) -> list[int]:
    """Return one rank of each host in turn."""
    return sorted(range(len(hosts)), key=lambda r: (hosts[:r].count(hosts[r]), hosts[r]))


EXERCISE = Exercise(
    id="20-4",
    title="Put neighbours together",
    answer="ring_order",
    trial=trial,
    expected=expected,
    entries=tuple(
        label for name, _ in CASES for label in (f"{name}: hops", "the same list on every rank")
    ),
    mistakes=(
        Mistake(
            "ring_order returns nothing: end it with return and the list.",
            when=some_rank(lambda mine, its: None in mine),
        ),
        Mistake(
            "The items have to be the numbers of the ranks, as int, in a list: [0, 2, 1, 3].",
            when=some_rank(lambda mine, its: NO_LIST in mine),
        ),
        Mistake(
            "Every rank has to be in the list exactly once, also those of other hosts.",
            when=some_rank(lambda mine, its: NOT_ALL in mine),
        ),
        Mistake(
            "The ranks return different lists, so they would not form one ring: use a rule that "
            "does not depend on which rank applies it, such as the host's name. (hash() of a text, "
            "and with it the order of a set, differs from process to process.)",
            when=some_rank(lambda mine, its: False in mine[1::2]),
        ),
        Mistake(
            "That is the order of the ranks' numbers, so the ring leaves a host as often as the "
            "launcher has dealt them. Put the ranks of each host next to each other.",
            when=simulated(_each(lambda hosts: list(range(len(hosts))))),
        ),
        Mistake(
            "Your list says at which place each rank stands. Return the ranks in the order of the "
            "ring: item 0 is the rank that comes first.",
            when=simulated(_each(_places)),
        ),
        Mistake(
            "You take one rank of each host in turn: then every step of the ring leaves a host, "
            "which is the worst order.",
            when=simulated(_each(_in_turn)),
        ),
    ),
    hints=(
        "First every rank has to know every rank's host. Then sort.",
        "Sorted by the name of its host, the ranks of a host stand next to each other.",
        "sorted(…, key=…) sorts the numbers of the ranks; the key of a rank is its host.",
    ),
)
