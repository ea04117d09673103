"""The exercises of notebook 02: messages from one rank to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..exercise import Exercise, Failed, Goal, Here, Mistake
from ..mistakes import failed

#: How much later than its neighbours a slow rank comes, in seconds.
LATE_SECONDS = 0.15
#: What a trial writes into a tensor that an exchange should be done with.
OVERWRITTEN = -1.0


def _come_late(here: Here) -> None:
    """Let odd ranks come late to each of their messages: an answer that does not wait is then
    found out on the other rank, every time."""
    here.be_late(LATE_SECONDS * (here.rank % 2))


def _listed(value: Any) -> Any:
    """Return a tensor as a list, and anything else as it is."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _all(yours: Sequence[Any], test: Callable[[int, Any], bool]) -> bool:
    """Tell whether no rank failed and a test of rank and value holds on all of them."""
    return not failed(yours) and all(test(r, v) for r, v in enumerate(yours))


# -- 02-1 ---------------------------------------------------------------------------------------


def _brought(rank: int) -> list[float]:
    return [rank + 1.0, 10.0 * (rank + 1)]


def trial_running_sum(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> Any:
    return _listed(answer(torch.tensor(_brought(here.rank), device=here.device)))


def expected_running_sum(world_size: int) -> list[list[float]]:
    """Add up in one process."""
    brought = torch.tensor([_brought(rank) for rank in range(world_size)])
    return [row.tolist() for row in brought.cumsum(0)]


# -- 02-2 ---------------------------------------------------------------------------------------


def trial_exchange(answer: Callable[[torch.Tensor, int], torch.Tensor], here: Here) -> Any:
    """Exchange between ranks 0 and 1, 2 and 3, …; overwrite what was sent as soon as it returns.

    Odd ranks are slow. A last rank without a partner does nothing.
    """
    rank = here.rank
    peer = rank ^ 1
    if peer >= here.world_size:
        return None
    x = torch.tensor(_brought(rank), device=here.device)
    _come_late(here)
    received = _listed(answer(x, peer))
    x.fill_(OVERWRITTEN)
    return received


def expected_exchange(world_size: int) -> list[Any]:
    return [_brought(r ^ 1) if r ^ 1 < world_size else None for r in range(world_size)]


def _received(yours: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return rank and what it received, of those that exchanged something."""
    return [(r, v) for r, v in enumerate(yours) if v is not None and not isinstance(v, Failed)]


# -- 02-3 ---------------------------------------------------------------------------------------


def trial_shift(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> Any:
    """Shift once round the ring, odd ranks being slow."""
    _come_late(here)
    return _listed(answer(torch.tensor(_brought(here.rank), device=here.device)))


def expected_shift(world_size: int) -> list[list[float]]:
    return [_brought((rank - 1) % world_size) for rank in range(world_size)]


# -- 02-4 ---------------------------------------------------------------------------------------


def trial_collect(answer: Callable[[torch.Tensor], torch.Tensor | None], here: Here) -> Any:
    """Collect on rank 0 from ranks that come in the opposite order: the last one first."""
    rank = here.rank
    if rank:
        time.sleep((here.world_size - 1 - rank) * LATE_SECONDS)
    return _listed(answer(torch.tensor(_brought(rank), device=here.device)))


def expected_collect(world_size: int) -> list[Any]:
    everyone = [_brought(rank) for rank in range(world_size)]
    return [everyone, *[None] * (world_size - 1)]


def _rows(yours: Sequence[Any]) -> list[Any]:
    """Return the rows that rank 0 has, none if it failed."""
    return yours[0] if isinstance(yours[0], list) else []


# -- 02-5 ---------------------------------------------------------------------------------------

#: Two sizes in bytes, and the α and β that they are timed with: all exact in floating point.
SIZES = (1024, 1048576)
ALPHA, BETA = 2.0**-14, 2.0**-31


def trial_alpha_beta(
    answer: Callable[[float, float, float, float], tuple[float, float]], here: Here
) -> list[float]:
    """Fit two points; return α in µs and 1/β in GB/s, as people say them."""
    small, large = SIZES
    alpha, beta = answer(small, ALPHA + BETA * small, large, ALPHA + BETA * large)
    return [1e6 * alpha, 1e-9 / beta if beta else 0.0]


def expected_alpha_beta() -> list[float]:
    return [1e6 * ALPHA, 1e-9 / BETA]


def _near(value: float, other: float) -> bool:
    return abs(value - other) <= 1e-6 * abs(other)


EXERCISES = (
    Exercise(
        id="02-1",
        title="Pass a sum along the chain",
        answer="running_sum",
        trial=trial_running_sum,
        expected=expected_running_sum,
        forbids=("all_reduce", "reduce", "all_gather", "gather", "broadcast"),
        goals=(Goal("messages sent", most=lambda n: 1),),
        mistakes=(
            Mistake(
                "The last rank sends too, to a rank that does not exist: the chain ends there.",
                when=lambda yours, expected, n: (
                    isinstance(yours[-1], Failed) and yours[-1].name == "ValueError"
                ),
            ),
            Mistake(
                "Rank 0 has nobody before it: it begins, and receives nothing.",
                when=lambda yours, expected, n: failed(yours),
            ),
            Mistake(
                "You pass on your own x: pass on the sum that you have so far.",
                when=lambda yours, expected, n: _all(
                    yours[1:],
                    lambda r, v: (
                        v == [a + b for a, b in zip(_brought(r), _brought(r + 1), strict=True)]
                    ),
                ),
            ),
            Mistake(
                "Rank 0's tensor goes down the chain unchanged: add your own x before you send.",
                when=lambda yours, expected, n: _all(yours, lambda r, v: v == _brought(0)),
            ),
            Mistake(
                "Your own x is missing: a rank returns what it received plus its own.",
                when=lambda yours, expected, n: _all(yours[1:], lambda r, v: v == expected[r]),
            ),
            Mistake(
                "You return your own x: the sum is in the tensor that you received into.",
                when=lambda yours, expected, n: _all(yours, lambda r, v: v == _brought(r)),
            ),
        ),
        hints=(
            "Rank r does three things: receive from rank r - 1, add, send to rank r + 1. The first "
            "and the last rank leave one of them out.",
            "Begin with total = x.clone(). If rank > 0, receive the sum so far into a new tensor "
            "and add it to total. Then send total, if there is a next rank.",
            "if rank > 0: dist.recv(before, rank - 1); total += before. Then: "
            "if rank < world_size - 1: dist.send(total, rank + 1).",
        ),
    ),
    Exercise(
        id="02-2",
        title="Exchange with a neighbour",
        answer="exchange",
        trial=trial_exchange,
        expected=expected_exchange,
        forbids=("all_gather", "all_to_all", "broadcast", "send", "recv"),
        goals=(Goal("messages sent", most=lambda n: 1),),
        mistakes=(
            Mistake(
                "You wait for the send before you post the receive, on both ranks: start both, "
                "then wait for both.",
                when=lambda yours, expected, n: failed(yours, "Deadlock", "TimedOut"),
            ),
            Mistake(
                "A rank got back its own numbers: you receive into x, which is still to be sent. "
                "Receive into a tensor of its own.",
                when=lambda yours, expected, n: any(
                    got == _brought(r) for r, got in _received(yours)
                ),
            ),
            Mistake(
                "The result was read before it had arrived: the function returned without waiting "
                "for its irecv.",
                when=lambda yours, expected, n: any(
                    got not in (_brought(r ^ 1), [OVERWRITTEN] * 2) for r, got in _received(yours)
                ),
            ),
            Mistake(
                "x was overwritten (by -1) before it was read: the function returned without "
                "waiting for its isend.",
                when=lambda yours, expected, n: any(
                    got == [OVERWRITTEN] * 2 for _, got in _received(yours)
                ),
            ),
        ),
        hints=(
            "Two calls that return at once, then two waits. And a new tensor to receive into.",
            "isend and irecv each return a work. As long as wait() has not returned on both, x may "
            "not be changed and the result may not be read.",
            "works = [dist.isend(x, peer), dist.irecv(received, peer)], then work.wait() for each "
            "of them, then return received.",
        ),
    ),
    Exercise(
        id="02-3",
        title="Shift around a ring",
        answer="shift",
        trial=trial_shift,
        expected=expected_shift,
        forbids=("all_gather", "all_to_all", "all_to_all_single", "broadcast", "scatter"),
        goals=(Goal("messages sent", most=lambda n: 1),),
        mistakes=(
            Mistake(
                "There is no rank world_size: after the last rank comes rank 0, so count modulo "
                "world_size.",
                when=lambda yours, expected, n: failed(yours, "ValueError"),
            ),
            Mistake(
                "Every rank sends first, and no send returns before its message is received: use "
                "batch_isend_irecv, or let one rank receive first.",
                when=lambda yours, expected, n: failed(yours, "Deadlock", "TimedOut"),
            ),
            Mistake(
                "It went the other way round: send to rank + 1, receive from rank - 1.",
                when=lambda yours, expected, n: (
                    n > 2 and _all(yours, lambda r, v: v == _brought((r + 1) % n))
                ),
            ),
            Mistake(
                "You return your own x: the neighbour's is in the tensor that you received into.",
                when=lambda yours, expected, n: _all(yours, lambda r, v: v == _brought(r)),
            ),
            Mistake(
                "Some ranks return numbers that nobody has sent: wait for every work before you "
                "read what it receives.",
                when=lambda yours, expected, n: (
                    not failed(yours) and any(v not in expected for v in yours)
                ),
            ),
        ),
        hints=(
            "To whom do you send, from whom do you receive? Both are found with % world_size.",
            "A list of two P2POp, one with dist.isend and one with dist.irecv, given to "
            "batch_isend_irecv. Then wait for all works that it returns.",
            "ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, received, left)], "
            "then for work in dist.batch_isend_irecv(ops): work.wait().",
        ),
    ),
    Exercise(
        id="02-4",
        title="Gather with messages",
        answer="collect",
        trial=trial_collect,
        expected=expected_collect,
        forbids=(
            "gather",
            "all_gather",
            "all_gather_into_tensor",
            "gather_object",
            "all_gather_object",
            "all_to_all",
            "reduce",
            "all_reduce",
        ),
        goals=(Goal("messages sent", most=lambda n: 1),),
        mistakes=(
            Mistake(
                "Rank 0 sends to itself, which no receive matches: it already has its own x.",
                when=lambda yours, expected, n: (
                    isinstance(yours[0], Failed) and yours[0].name == "ValueError"
                ),
            ),
            Mistake(
                "The rows are in the order in which they arrived: recv returns the rank of the "
                "sender, which is the row that belongs to it.",
                when=lambda yours, expected, n: (
                    n > 2
                    and len(_rows(yours)) == n
                    and _rows(yours) != expected[0]
                    and sorted(_rows(yours)) == expected[0]
                ),
            ),
            Mistake(
                "Several rows are the same: you received into one tensor again and again. Give "
                "each row its own, or copy.",
                when=lambda yours, expected, n: (
                    n > 2 and len(_rows(yours)) > 1 and _rows(yours)[1:-1] == _rows(yours)[2:]
                ),
            ),
            Mistake(
                "Rank 0's own row is missing: nobody sends it, so write it yourself.",
                when=lambda yours, expected, n: (
                    _rows(yours) != expected[0] and _rows(yours)[-(n - 1) :] == expected[0][1:]
                ),
            ),
            Mistake(
                "Ranks other than 0 have to return None.",
                when=lambda yours, expected, n: (
                    not failed(yours) and any(v is not None for v in yours[1:])
                ),
            ),
        ),
        hints=(
            "Rank 0 makes room for n rows, writes its own, and receives n - 1 times. The others "
            "send once.",
            "Without a source, recv takes whoever comes first and returns its rank. Use it as the "
            "row, or name the sources one after the other.",
            "rows = torch.empty(world_size, *x.shape, device=x.device); rows[0] = x; then for r in "
            "range(1, world_size): dist.recv(rows[r], r).",
        ),
    ),
    Exercise(
        id="02-5",
        title="Find α and β",
        answer="alpha_beta",
        trial=trial_alpha_beta,
        expected=expected_alpha_beta,
        where="notebook",
        mistakes=(
            Mistake(
                "Both numbers are there, in the wrong order: α comes first.",
                when=lambda yours, expected, n: (
                    _near(yours[0], 1e6 * BETA) and _near(yours[1], 1e-9 / ALPHA)
                ),
            ),
            Mistake(
                "Your β is the time of a byte if calls cost nothing. It is how much *longer* the "
                "large message takes, for each byte that it has more.",
                when=lambda yours, expected, n: _near(
                    yours[1], 1e-9 * SIZES[1] / (ALPHA + BETA * SIZES[1])
                ),
            ),
            Mistake(
                "Your β is a rate, bytes a second: turn it round, it is seconds a byte.",
                when=lambda yours, expected, n: _near(yours[1], 1e-9 * BETA),
            ),
            Mistake(
                "Your α is the whole time of the small message: take off what its bytes cost.",
                when=lambda yours, expected, n: _near(yours[0], 1e6 * (ALPHA + BETA * SIZES[0])),
            ),
        ),
        hints=(
            "Two points, one line: β is its slope, α is its height at zero.",
            "β is the difference of the times divided by the difference of the sizes.",
            "beta = (t2 - t1) / (n2 - n1), and alpha is what is left of t1: t1 - beta * n1.",
        ),
    ),
)
