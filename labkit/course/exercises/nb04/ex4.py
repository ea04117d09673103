"""Exercise 04-4: average gradients in several buckets, filled from the last parameter to the
first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import When

#: Numbers in each parameter, first to last, and the cap of a bucket.
NUMBERS = (3, 2, 7, 4, 1, 5, 8)
CAP = 6
#: Their sizes, a list for each bucket, in the order in which they were sent.
Buckets = list[list[int]]


def trial(answer: Callable[[nn.Module, int], Any], here: Here) -> dict[str, Any]:
    """Fill buckets; return what was in each one, and whether every gradient is averaged."""
    device = here.device
    net = nn.ParameterList(torch.zeros(size, device=device) for size in NUMBERS)
    for number, p in enumerate(net):
        p.grad = torch.full_like(p, 2.0 * here.rank + number)
    names = answer.__globals__
    stock, sent = names["average_bucket"], []

    def average_bucket(parameters: Any) -> None:
        bucket = list(parameters)
        stock(bucket)
        sent.append(sorted(p.numel() for p in bucket))

    with patch.dict(names, average_bucket=average_bucket):
        answer(net, CAP)
    averaged = [
        bool((p.grad == here.world_size - 1 + number).all()) for number, p in enumerate(net)
    ]
    return {"buckets": sent, "averaged": sum(averaged)}


def _fill(numbers: Sequence[int], full: Callable[[int, int], bool]) -> Buckets:
    """Fill buckets; ``full(held, next)`` tells when one is closed before the next parameter."""
    buckets: Buckets = [[]]
    for size in numbers:
        if buckets[-1] and full(sum(buckets[-1]), size):
            buckets.append([])
        buckets[-1].append(size)
    return [sorted(bucket) for bucket in buckets]


def _too_much(held: int, size: int) -> bool:
    return held + size > CAP


BACKWARDS = NUMBERS[::-1]


def expected(n: int) -> list[dict[str, Any]]:
    return [{"buckets": _fill(BACKWARDS, _too_much), "averaged": len(NUMBERS)}] * n


def _past_the_large(numbers: Sequence[int]) -> Buckets:
    """Fill buckets, but send what is larger than the cap at once, and keep the open bucket."""
    buckets, held = [], list[int]()
    for size in numbers:
        if size > CAP:
            buckets.append([size])
            continue
        if sum(held) + size > CAP:
            buckets.append(sorted(held))
            held = []
        held.append(size)
    return [*buckets, sorted(held)]


def _filled(wrong: Buckets) -> When:
    return lambda yours, expected, n: all(y["buckets"] == wrong for y in yours)


EXERCISE = Exercise(
    id="04-4",
    title="Several buckets",
    answer="average_in_buckets",
    setup="""
        def average_bucket(parameters):
            gradients = [p.grad for p in parameters]
            bucket = torch.cat([g.flatten() for g in gradients])
            dist.all_reduce(bucket)
            bucket /= world_size
            for g, piece in zip(gradients, bucket.split([g.numel() for g in gradients])):
                g.copy_(piece.view_as(g))
    """,
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: len(_fill(BACKWARDS, _too_much))),),
    mistakes=(
        Mistake(
            "An empty bucket was sent. The last parameter is larger than cap, and before it "
            "there is nothing to send: check that the bucket is not empty.",
            raises=r"expected a non-empty list of Tensors",
            shown_by={"sends an empty bucket": edit("bucket and size", "size")},
        ),
        Mistake(
            "The bucket that is being filled when the loop ends is never sent: average it too.",
            when=_filled(_fill(BACKWARDS, _too_much)[:-1]),
            shown_by={
                "forgets the last bucket": body("""
                    bucket, size = [], 0
                    for p in reversed(list(net.parameters())):
                        if bucket and size + p.numel() > cap:
                            average_bucket(bucket)
                            bucket, size = [], 0
                        bucket.append(p)
                        size += p.numel()
                """),
            },
        ),
        Mistake(
            "These buckets begin with the first parameter. backward() computes the gradients of "
            "the last one first: reversed(list(net.parameters())).",
            when=_filled(_fill(NUMBERS, _too_much)),
            shown_by={
                "from the front": edit(
                    "for p in reversed(list(net.parameters())):", "for p in net.parameters():"
                )
            },
        ),
        Mistake(
            "A bucket may hold exactly cap numbers: close it only if the next parameter would "
            "make it hold more.",
            when=_filled(_fill(BACKWARDS, lambda held, size: held + size >= CAP)),
            shown_by={"less than the cap": edit("> cap:", ">= cap:")},
        ),
        Mistake(
            "A parameter larger than cap was sent at once, and the bucket that was open before it "
            "took more parameters after it. Send that bucket first: the gradients in it are ready "
            "earlier.",
            when=_filled(_past_the_large(BACKWARDS)),
            shown_by={
                "passes the open bucket": edit(
                    """
                    if bucket and size + p.numel() > cap:
                    """,
                    """
                    if p.numel() > cap:
                        average_bucket([p])
                        continue
                    if bucket and size + p.numel() > cap:
                    """,
                ),
            },
        ),
        Mistake(
            "Every parameter has a bucket of its own. Put several into one bucket, until the "
            "next would make it hold more than cap.",
            when=_filled([[size] for size in BACKWARDS]),
            shown_by={
                "one for each": body("""
                    for p in reversed(list(net.parameters())):
                        average_bucket([p])
                """),
            },
        ),
        Mistake(
            "A bucket of several parameters holds more than cap numbers: check whether the next "
            "one still fits before you add it.",
            when=lambda yours, expected, n: any(
                len(bucket) > 1 and sum(bucket) > CAP for y in yours for bucket in y["buckets"]
            ),
            shown_by={
                "asks too late": body("""
                    bucket = []
                    for p in reversed(list(net.parameters())):
                        bucket.append(p)
                        if sum(q.numel() for q in bucket) >= cap:
                            average_bucket(bucket)
                            bucket = []
                    if bucket:
                        average_bucket(bucket)
                """),
                "one for all": body("average_bucket(reversed(list(net.parameters())))"),
            },
        ),
    ),
    another=body("""
        buckets = [[]]
        for p in list(net.parameters())[::-1]:
            held = sum(q.numel() for q in buckets[-1])
            if held and held + p.numel() > cap:
                buckets.append([])
            buckets[-1].append(p)
        for bucket in buckets:
            average_bucket(bucket)
    """),
    hints=(
        "While you go through the parameters, keep two things: a list, and how many numbers are "
        "in it. p.numel() says how many a parameter has.",
        "Before you add a parameter: if the bucket is not empty and this one would make it "
        "larger than cap, send the bucket and begin a new one. After the loop, send the last one.",
        "The condition is bucket and size + p.numel() > cap. If it holds: "
        "average_bucket(bucket), then begin again with an empty list and size 0. In any case p "
        "joins the bucket after that.",
    ),
)
