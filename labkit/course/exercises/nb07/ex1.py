"""Exercise 07-1: launch buckets in their turn, as DDP's reducer does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from ...compare import same
from ...exercise import Exercise, Here, Mistake
from ...mistakes import every_rank
from .reducer_steps import IN_A_HOOK, LENGTH, STEPS, TOO_EARLY, Steps, gradient, started


def trial(answer: Callable[..., Any], here: Here) -> list[dict[str, Any]]:
    found = []
    for whole, steps in ((False, (0, 1, 2, 3)), (True, (4,))):
        own = Steps(here, whole)
        finish = answer(own.buckets, own.start, own.collect)
        for p in own.parameters:  # after the answer's hooks
            p.register_post_accumulate_grad_hook(lambda _, own=own: own.note())
        found += [own.step(number, finish) for number in steps]
    return found


def expected(n: int) -> list[list[dict[str, Any]]]:

    def right(step: int, rank: int) -> dict[str, Any]:
        own = [torch.cat([gradient(step, r, i) for i in range(len(LENGTH))]) for r in range(n)]
        orders = started(step, rank)
        return {
            "started after each gradient": [len(order) for order in orders],
            "order": orders[-1],
            "gradients": torch.stack(own).mean(dim=0),
        }

    return [[right(step, rank) for step in range(len(STEPS))] for rank in range(n)]


EXERCISE = Exercise(
    id="07-1",
    title="Launch buckets in their turn",
    answer="reducer",
    setup="""
        from collections.abc import Callable

        from torch import nn
    """,
    trial=trial,
    expected=expected,
    entries=STEPS,
    mistakes=(
        Mistake(
            "start was called for a bucket of which not every gradient was in .grad. Count the "
            "gradients of each bucket that have arrived. Use register_post_accumulate_grad_hook: "
            "its hook is called when .grad has been written, that of register_hook before.",
            raises=TOO_EARLY,
        ),
        Mistake(
            "collect was called in a hook. It waits for the other ranks, so backward() would "
            "stand still: call it in finish() only.",
            raises=re.escape(IN_A_HOOK),
        ),
        Mistake(
            "finish() collects a bucket that was never started. Each hook has to count for its "
            "own bucket, all buckets that are ready start in their turn, not only one, and "
            "counting begins anew in each step.",
            raises=r"IndexError: pop from empty list",
        ),
        Mistake(
            "A bucket is started as soon as it is ready, even before its turn. Ranks whose "
            "gradients arrive in different orders would then mix up their buckets: bucket k "
            "starts only after buckets 0 to k - 1.",
            when=every_rank(lambda mine, its: mine[2]["order"] == started(2, 0, turns=False)[-1]),
        ),
        Mistake(
            "All buckets are started in finish(), when backward() has ended, so nothing overlaps. "
            "Start each bucket in a hook.",
            when=every_rank(
                lambda mine, its: (
                    not any(mine[0]["started after each gradient"]) and bool(mine[0]["order"])
                )
            ),
        ),
        Mistake(
            "No bucket was ever started. If your hooks are made in a loop, each needs a k of its "
            "own: lambda p, k=k: … keeps the value, lambda p: … sees the loop's last one.",
            when=every_rank(lambda mine, its: not mine[0]["order"]),
        ),
        Mistake(
            "The first step is right, the second is not: finish() has to reset what you have "
            "counted and started.",
            when=every_rank(lambda mine, its: same(mine[0], its[0]) and not same(mine[1], its[1])),
        ),
    ),
    hints=(
        "Two things have to be known at any time: how many gradients each bucket still lacks, "
        "and which bucket is next.",
        "p.register_post_accumulate_grad_hook(f) calls f(p) when p.grad is complete. The hook of a "
        "parameter in bucket k counts. Then, as long as the next bucket lacks nothing, it starts "
        "that bucket, keeps what start returned, and goes on to the one after it.",
        "Keep a list of what start has returned: its length is the number of the next bucket. "
        "finish() collects bucket after bucket, empties that list, and resets the counts.",
    ),
)
