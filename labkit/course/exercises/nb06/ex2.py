"""Exercise 06-2: average buckets of gradients while backward() computes, in one fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, every_rank, some_rank
from ...trial_tools import noted
from . import averaging
from .averaging import AGAIN, CAP, MEAN, OLD, OTHER, OWN, STEPS, SUM

ENTRIES = (
    "weights equal to rank 0's afterwards",
    "bytes of each all-reduce of a step",
    "all-reduces (started, waited for) when backward() reaches the first layer",
    *(f"gradients after step {step + 1}" for step in range(STEPS)),
    "gradients if odd ranks use two layers in the opposite order",
)
#: What the chain's buckets hold, in bytes; the last one begins at the first layer.
BYTES = [80, 192, 160]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Take two steps with the chain, and one with two layers in different orders."""
    everyone = range(here.world_size)
    net = averaging.chain(here.rank, here.device)
    wait_for_all = answer(net, CAP)
    zero = averaging.chain(0, here.device)
    equal = all(map(torch.equal, net.parameters(), zero.parameters()))
    marks, sizes, names, old = [], [], [], None
    for step in range(STEPS):
        own = [
            averaging.gradients(net, averaging.loss_of_chain(net, rank, step)) for rank in everyone
        ]
        net.zero_grad()
        with noted() as notes:
            mark = lambda n=notes: marks.append((len(n.bytes), n.waits))  # noqa: E731
            averaging.loss_of_chain(net, here.rank, step, mark).backward()
            wait_for_all()
        sizes.append(notes.bytes)
        names.append(averaging.name_of(net, own, here.rank, old))
        old = torch.stack(own).mean(dim=0)
    return [equal, sizes[0], list(marks[0]), *names, _two_orders(answer, here)]


def _two_orders(answer: Callable[..., Any], here: Here) -> str:
    """Take a step in which half of the ranks have their gradients in the opposite order."""
    layers = averaging.pair(here.device)
    own = [
        averaging.gradients(layers, averaging.loss_of_pair(layers, rank))
        for rank in range(here.world_size)
    ]
    wait_for_all = answer(layers, 1)
    averaging.loss_of_pair(layers, here.rank).backward()
    wait_for_all()
    return averaging.name_of(layers, own, here.rank)


def expected(n: int) -> list[list[Any]]:
    return [[True, BYTES, [2, 0], *[MEAN] * STEPS, MEAN]] * n


def _pair(*wrong: str) -> Predicate:
    """Return the predicate of these gradients in the opposite order, on some rank, where the chain
    is in order."""
    return every_rank(lambda mine, its: mine[:5] == its[:5]) & some_rank(
        lambda mine, its: mine[5] in wrong
    )


def _only(*wrong: str) -> Predicate:
    """Return the predicate of these gradients in the first step, on all ranks, after all-reduces
    of the right buckets."""
    return every_rank(lambda mine, its: mine[3] in wrong and mine[1] == BYTES)


EXERCISE = Exercise(
    id="06-2",
    title="Overlap the averages with backward()",
    answer="overlapped",
    setup=averaging.SETUP,
    trial=trial,
    expected=expected,
    entries=ENTRIES,
    # buckets of both networks, and one broadcast per parameter
    goals=(Goal("collectives", most=lambda n: len(BYTES) * STEPS + 4 + 6 + 4),),
    mistakes=(
        Mistake(
            "A bucket was started before all of its gradients were there. Start it when the last "
            "of its parameters is ready, and forget at the end of a step which ones were ready.",
            raises=r"AttributeError: 'NoneType' object has no attribute 'flatten'",
        ),
        Mistake(
            "overlapped returns nothing, or calls the function instead of returning it: return "
            "the function itself, without ().",
            raises=r"TypeError: 'NoneType' object is not callable",
        ),
        Mistake(
            "The ranks begin with different weights: overlapped has to broadcast rank 0's first.",
            when=some_rank(lambda mine, its: not mine[0]),
        ),
        Mistake(
            "After the second step the gradients are the means of the first: forget at the end "
            "of a step what was started, or nothing is started in the next.",
            when=some_rank(lambda mine, its: mine[4] == OLD),
        ),
        Mistake(
            "Each rank keeps its own gradients: a mean that is in flat has to be copied back, by "
            "finish, after the wait.",
            when=_only(OWN),
        ),
        Mistake(
            "start has divided by world_size already. The gradients are too small or too large "
            "by a factor: do not scale them again.",
            when=_only(SUM, AGAIN),
        ),
        Mistake(
            "Nothing is started before backward() has ended: give every parameter a hook, which "
            "calls start as soon as a bucket is ready.",
            when=every_rank(lambda mine, its: mine[2] == [0, 0] and mine[1] in ([], BYTES)),
        ),
        Mistake(
            "The hook waits for its all-reduce, and backward() waits for the hook: nothing "
            "overlaps. Start in the hook, finish in the function that you return.",
            when=every_rank(lambda mine, its: mine[2][1] > 0),
        ),
        Mistake(
            "There is a call per parameter. The buckets are those of cut(net, cap), with one call "
            "each.",
            when=every_rank(
                lambda mine, its: len(mine[1]) > len(BYTES) and sum(mine[1]) == sum(BYTES)
            ),
        ),
        Mistake(
            "The gradients are wrong where ranks have them in different orders: each rank started "
            "its buckets in the order in which they were ready, and the n-th call of one rank is "
            "matched with the n-th call of another. Start them in one fixed order: bucket k only "
            "after bucket k - 1.",
            when=_pair(OTHER, AGAIN, SUM),
        ),
        Mistake(
            "A ready bucket is never started on some rank. One gradient can complete the bucket "
            "whose turn it is while the buckets after it are ready already: after each gradient, "
            "start as many buckets as possible.",
            when=_pair(OWN, OTHER),
            stuck=r"which ha(?:s|ve) (?:ended|finished)",
        ),
    ),
    hints=(
        "Keep three things from hook to hook: the buckets, which parameters are ready, and what "
        "has been started. Functions that you define inside overlapped share its variables.",
        "The hook adds its parameter to those that are ready. Then, as long as the next bucket "
        "in order has all of its gradients, it starts that bucket. The function that you return "
        "finishes what was started and empties both collections for the next step.",
        "The next bucket is buckets[len(started)], if there is one left. A set of parameters has "
        "issuperset. p.register_post_accumulate_grad_hook(hook) on every parameter, once.",
    ),
)
