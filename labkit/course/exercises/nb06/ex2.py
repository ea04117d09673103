"""Exercise 06-2: average buckets of gradients while backward() computes, in one fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, every_rank, some_rank
from ...trial_tools import noted
from . import averaging
from .averaging import AGAIN, CAP, MEAN, OTHER, OWN, STEPS, SUM

#: What the chain's buckets hold, in bytes; the last one begins at the first layer.
BYTES = [80, 192, 160]
#: What the trial finds out, in words that a learner knows.
WEIGHTS, SENT = "weights", "bytes sent by all_reduce"
EARLY, ORDERS = "started and awaited in backward()", "opposite orders"
FIRST, SECOND = (f"gradients of step {step + 1}" for step in range(STEPS))
ZERO, NOT_ZERO = "rank 0's", "not rank 0's"
#: The bytes of one bucket that holds everything.
ALL = 10**9


def trial(answer: Callable[..., Any], here: Here) -> dict[str, Any]:
    """Take two steps with the chain, and two with two layers in different orders.

    The chain's buckets have to be sent by a function of the trial's own, which counts them: a race
    of an answer that uses another one would time the wrong network.
    """
    everyone = range(here.world_size)
    net = averaging.chain(here.rank, here.device)
    sent: list[int] = []

    def all_reduce(x: torch.Tensor) -> Any:
        sent.append(x.nbytes)
        return dist.all_reduce(x, async_op=True)

    wait_for_all = answer(net, CAP, all_reduce)
    zero = averaging.chain(0, here.device)
    equal = all(map(torch.equal, net.parameters(), zero.parameters()))
    marks, sizes, names, old = [], [], [], None
    for step in range(STEPS):
        own = [
            averaging.gradients(net, averaging.loss_of_chain(net, rank, step)) for rank in everyone
        ]
        net.zero_grad()
        sent.clear()
        with noted() as notes:
            mark = lambda n=notes: marks.append((len(n.bytes), n.waits))  # noqa: E731
            averaging.loss_of_chain(net, here.rank, step, mark).backward()
            wait_for_all()
        sizes.append(list(sent))
        names.append(averaging.name_of(net, own, here.rank, old))
        old = torch.stack(own).mean(dim=0)
    return {
        WEIGHTS: ZERO if equal else NOT_ZERO,
        SENT: sizes[0],
        EARLY: list(marks[0]),
        FIRST: names[0],
        SECOND: names[1],
        ORDERS: _two_orders(answer, here),
    }


def _two_orders(answer: Callable[..., Any], here: Here) -> str:
    """Take steps in which half of the ranks have their gradients in the opposite order: with each
    parameter in a bucket of its own, then with all in one."""
    for cap in (1, ALL):
        layers = averaging.pair(here.device)
        own = [
            averaging.gradients(layers, averaging.loss_of_pair(layers, rank))
            for rank in range(here.world_size)
        ]
        wait_for_all = answer(layers, cap, _all_reduce)
        averaging.loss_of_pair(layers, here.rank).backward()
        wait_for_all()
        found = averaging.name_of(layers, own, here.rank)
        if found != MEAN:
            return found
    return MEAN


def _all_reduce(x: torch.Tensor) -> Any:
    return dist.all_reduce(x, async_op=True)


def expected(n: int) -> list[dict[str, Any]]:
    right = {WEIGHTS: ZERO, SENT: BYTES, EARLY: [2, 0], FIRST: MEAN, SECOND: MEAN, ORDERS: MEAN}
    return [right] * n


def _pair(*wrong: str) -> Predicate:
    """Return the predicate of these gradients in the opposite order, on some rank, where the chain
    is in order."""
    return every_rank(
        lambda mine, its: all(mine[part] == its[part] for part in its if part != ORDERS)
    ) & some_rank(lambda mine, its: mine[ORDERS] in wrong)


EXERCISE = Exercise(
    id="06-2",
    title="Overlap the averages with backward()",
    answer="overlapped",
    setup=averaging.SETUP,
    trial=trial,
    expected=expected,
    # buckets of both networks (the pair's are four, then one), and one broadcast per parameter
    goals=(Goal("collectives", most=lambda n: len(BYTES) * STEPS + 4 + 1 + 6 + 4 + 4),),
    mistakes=(
        Mistake(
            "A bucket was started before all of its gradients were there. Wait until every one of "
            "its parameters is ready, in whichever order they come, and forget at the end of a "
            "step which ones were ready.",
            raises=r"AttributeError: 'NoneType' object has no attribute 'flatten'",
        ),
        Mistake(
            "The buckets are not sent by the all_reduce that was passed, so a simulated link would "
            "never see them: call start(bucket, all_reduce).",
            when=every_rank(lambda mine, its: mine[SENT] == [] and mine[EARLY][0] > 0),
        ),
        Mistake(
            "The ranks begin with different weights: overlapped has to broadcast rank 0's first.",
            when=some_rank(lambda mine, its: mine[WEIGHTS] == NOT_ZERO),
        ),
        Mistake(
            "Each rank keeps its own gradients: a mean that is in flat has to be copied back, by "
            "finish, after the wait.",
            when=every_rank(lambda mine, its: mine[FIRST] == OWN and mine[SENT] == BYTES),
        ),
        Mistake(
            "Nothing is started before backward() has ended. Give every parameter a hook by "
            "register_post_accumulate_grad_hook, which calls it with the parameter; a hook by "
            "register_hook is called with a gradient, before .grad is set.",
            when=every_rank(lambda mine, its: mine[EARLY] == [0, 0] and mine[SENT] in ([], BYTES)),
        ),
        Mistake(
            "The hook waits for its all-reduce, and backward() waits for the hook: nothing "
            "overlaps. Start in the hook, finish in the function that you return.",
            when=every_rank(lambda mine, its: mine[EARLY][1] > 0),
        ),
        Mistake(
            "The first step is right, and the second goes on with what it left: the function that "
            "you return has to empty both collections after it has waited.",
            when=every_rank(lambda mine, its: mine[FIRST] == MEAN and mine[SENT] == BYTES)
            & some_rank(lambda mine, its: mine[SECOND] != MEAN),
        ),
        Mistake(
            "The gradients are wrong where ranks have them in different orders: each rank started "
            "its buckets in the order in which they were ready, and the n-th call of one rank is "
            "matched with the n-th call of another. Start them in one fixed order: bucket k only "
            "after bucket k - 1.",
            when=_pair(OTHER, AGAIN, SUM),
        ),
        Mistake(
            "A ready bucket is never started on some rank. By the time it is its turn, gradients "
            "of later buckets may be ready, too, and one gradient may allow several buckets to "
            "start. After each gradient, start buckets in order as long as all gradients of the "
            "next one are among those that are ready.",
            when=_pair(OWN, OTHER),
            stuck=r"which ha(?:s|ve) (?:ended|finished)",
        ),
    ),
    hints=(
        "The hook and the function that you return are defined inside overlapped, so both share "
        "its variables: a list of buckets, a set of parameters, and a list of what start gave.",
        "The hook adds its parameter to those that are ready. Then, as long as the next bucket "
        "in order has all of its gradients, it starts that bucket. The function that you return "
        "finishes what was started and empties both collections for the next step.",
        "The next bucket is buckets[len(started)], if there is one left. A set of parameters has "
        "issuperset. p.register_post_accumulate_grad_hook(hook) on every parameter, once.",
    ),
)
