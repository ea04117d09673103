"""Exercise 13-2: order the forward and backward passes of a stage: 1F1B.

The orders are compared as lists. Then the ranks send one message per pass in their own orders, and
count how many micro-batches they keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, every_rank, some_rank

#: Stages and micro-batches; every stage of each is asked for.
PIPES = ((4, 6), (4, 2), (2, 3), (3, 3), (1, 2))
CALLS = tuple((stage, p, m) for p, m in PIPES for stage in range(p))
#: Micro-batches with which the ranks run their orders: more, and fewer, than there are stages.
RUNS = (6, 1)
NOT_RUN = "not run: a rank's order does not have each pass once"


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Ask for every stage of each pipeline, then run this rank's own orders."""
    orders: list[Any] = [list(answer(*call)) for call in CALLS]
    return orders + [_run(list(answer(here.rank, here.world_size, m)), m, here) for m in RUNS]


def _run(order: Sequence[str], m: int, here: Here) -> int | str:
    """Send a message per pass, as a pipeline does, and return the most micro-batches kept."""
    everything = sorted(f"{kind}{k}" for kind in "FB" for k in range(m))
    complete = torch.tensor(int(sorted(order) == everything), device=here.device)
    dist.all_reduce(complete, dist.ReduceOp.MIN)
    if not complete.item():
        return NOT_RUN
    kept, most = 0, 0
    outgoing: int | None = None
    for name in order:
        step = 1 if name[0] == "F" else -1  # the way of the message
        _swap(outgoing, here.rank - step, here)
        kept += step
        most = max(most, kept)
        outgoing = here.rank + step
    _swap(outgoing, -1, here)
    return most


def _swap(to: int | None, source: int, here: Here) -> None:
    """Send to one rank and receive from another, in one batch; ranks that do not exist are left
    out."""
    ops = [
        dist.P2POp(call, torch.zeros(1, device=here.device), peer)
        for call, peer in ((dist.isend, to), (dist.irecv, source))
        if peer is not None and 0 <= peer < here.world_size
    ]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    if here.device.type == "cuda":
        torch.cuda.synchronize()


def _order(ahead: int, m: int) -> list[str]:
    """Return the order of a stage that runs ``ahead`` forwards before it alternates."""
    ahead = min(m, ahead)
    order = [f"F{k}" for k in range(ahead)]
    for k in range(ahead, m):
        order += [f"F{k}", f"B{k - ahead}"]
    return order + [f"B{k}" for k in range(m - ahead, m)]


def _orders(ahead: Callable[[int, int, int], int]) -> list[list[str]]:
    return [_order(ahead(*call), call[2]) for call in CALLS]


def expected(n: int) -> list[list[Any]]:
    """Return 1F1B, and what it keeps on each rank."""
    orders: list[Any] = _orders(lambda s, p, m: p - 1 - s)
    return [[*orders, *(min(m, n - rank) for m in RUNS)] for rank in range(n)]


def _starts(ahead: Callable[[int, int, int], int]) -> Predicate:
    """Return the predicate of orders that begin with so many forwards."""
    return every_rank(lambda mine, its: mine[: len(CALLS)] == _orders(ahead))


def _some_call(holds: Callable[[list[str], list[str], int], bool]) -> Predicate:
    """Return the predicate that ``holds(yours, expected, m)`` for some call, on some rank."""
    numbers = [m for _, _, m in CALLS]
    return some_rank(lambda mine, its: any(map(holds, mine, its, numbers)))


def _too_many(order: list[str], right: list[str], m: int) -> bool:
    """Return whether there is a micro-batch that does not exist."""
    return any(str(name)[:1] in "FB" and str(name)[1:] not in map(str, range(m)) for name in order)


EXERCISE = Exercise(
    id="13-2",
    title="1F1B",
    answer="one_f_one_b",
    trial=trial,
    expected=expected,
    entries=(
        *(f"one_f_one_b({stage}, {p}, {m})" for stage, p, m in CALLS),
        *(f"most micro-batches that this rank kept, of {m}" for m in RUNS),
    ),
    mistakes=(
        Mistake(
            "It names micro-batches that do not exist: their numbers are 0 to m - 1. If there "
            "are few, begin with only min(m, p - 1 - stage) forwards.",
            when=_some_call(_too_many),
        ),
        Mistake(
            "Entries are missing: every micro-batch has one forward and one backward. After the "
            "pairs, the backwards that are left have to follow.",
            when=_some_call(lambda order, right, m: set(order) < set(right)),
        ),
        Mistake(
            "This is GPipe's order: all forwards, then all backwards. It keeps all m "
            "micro-batches.",
            when=_starts(lambda s, p, m: m),
        ),
        Mistake(
            "In these orders the ranks wait for one another in a circle: a stage waits for a "
            "gradient before it has sent the micro-batches that later stages need first. The "
            "first stage has the most stages after it, so it begins with the most forwards: "
            "p - 1 - stage.",
            when=_starts(lambda s, p, m: s),
            stuck=r"waits? in (?:recv|send)",
        ),
        Mistake(
            "There is one forward too many at the beginning: the first pair begins with a "
            "forward too, so only p - 1 - stage come before it.",
            when=_starts(lambda s, p, m: p - s),
        ),
        Mistake(
            "Every stage alternates from the beginning, so each waits for its first micro-batch "
            "to come back before it takes the next. Only the last stage may do that.",
            when=_starts(lambda s, p, m: 0),
        ),
        Mistake(
            "The passes come back in the reverse order. Backwards, like forwards, are taken in "
            "the order 0, 1, 2, …",
            when=_some_call(
                lambda order, right, m: (
                    order != right
                    and sorted(order) == sorted(right)
                    and [x for x in order if x[0] == "B"] == [f"B{k}" for k in reversed(range(m))]
                )
            ),
        ),
        Mistake(
            "The items of the list have to be texts such as 'F0' and 'B0'.",
            when=_some_call(
                lambda order, right, m: not all(isinstance(name, str) for name in order)
            ),
        ),
        Mistake(
            "There is one forward too few at the beginning: p - 1 - stage of them come before the "
            "first pair.",
            when=_starts(lambda s, p, m: max(0, p - 2 - s)),
        ),
    ),
    hints=(
        "Three parts: a few forwards, then pairs of one forward and one backward, then the "
        "backwards that are left.",
        "ahead = min(m, p - 1 - stage) forwards come first. In the pairs, forward k goes with "
        "backward k - ahead.",
        'After the first ahead forwards: for each k from ahead to m - 1 the pair "F{k}", "B{k '
        '- ahead}". Which backwards have not been named then?',
    ),
)
