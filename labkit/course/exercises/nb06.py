"""The exercises of notebook 06: synchronous SGD by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from ..exercise import Exercise, Goal, Here, Mistake
from ..mistakes import When, failed, would_give

DOUBLE = 8  #: bytes

# -- 06-1: a batch without a remainder ----------------------------------------------------------

#: Batches that 2, 3, 4 or 8 ranks cannot share evenly, one that some can, and a tiny one.
BATCHES = (128, 130, 7, 3)


def size_trial(answer: Callable[[int], Any], here: Here) -> list[Any]:
    return [answer(whole) for whole in BATCHES]


def size_expected(n: int) -> list[list[int]]:
    """Deal each batch like cards and count the hands."""
    return [[len(range(rank, whole, n)) for whole in BATCHES] for rank in range(n)]


def _sizes(size: Callable[[int, int, int], float]) -> When:
    """Return the predicate of ``size(whole, rank, n)`` in place of the right one."""
    return would_give(lambda n: [[size(whole, r, n) for whole in BATCHES] for r in range(n)])


def _all_to(one: int) -> When:
    """Return the predicate of a remainder that goes to one rank."""
    return _sizes(lambda whole, rank, n: whole // n + (whole % n if rank == one else 0))


SIZE = Exercise(
    id="06-1",
    title="Lose no image of the batch",
    answer="my_batch_size",
    trial=size_trial,
    expected=size_expected,
    mistakes=(
        Mistake(
            "Every rank takes the same, rounded down, so the remainder is nobody's: of 130 images "
            "on four ranks, two are lost.",
            when=_sizes(lambda whole, rank, n: whole // n),
        ),
        Mistake(
            "Every rank takes the same, rounded up: together that is more than there is.",
            when=_sizes(lambda whole, rank, n: -(-whole // n)),
        ),
        Mistake(
            "One rank takes all of the remainder. Spread it: one image more for each of the first "
            "ranks.",
            when=lambda yours, expected, n: any(
                _all_to(rank)(yours, expected, n) for rank in (0, n - 1)
            ),
        ),
        Mistake(
            "One rank too many takes an image more. A remainder of 2 is for the ranks 0 and 1: "
            "rank < remainder.",
            when=_sizes(lambda whole, rank, n: whole // n + (rank <= whole % n)),
        ),
        Mistake(
            "The last ranks take the ones more, not the first.",
            when=_sizes(lambda whole, rank, n: whole // n + (rank >= n - whole % n)),
        ),
        Mistake(
            "A part of an image: / divides into fractions, // into whole numbers.",
            when=lambda yours, expected, n: any(
                isinstance(size, float) and size != int(size) for mine in yours for size in mine
            ),
        ),
    ),
    hints=(
        "Everybody takes whole // world_size. What is left over, and who takes that?",
        "The remainder is whole % world_size, less than the number of ranks: so the ranks below it "
        "take one image more.",
        "return whole // world_size + (1 if rank < … else 0)",
    ),
)


# -- 06-2: compare without collecting -----------------------------------------------------------

CHANGED = "vector has changed"


def _vectors(rank: int, n: int) -> list[torch.Tensor]:
    """Return this rank's vectors: equal on all ranks; one number differs on the last; the same
    numbers there in another order; and one that is higher on the first and lower on the second,
    so that the mean over the ranks is what all others hold."""
    base = torch.tensor([0.5, 1.5, 2.5, 4.5], dtype=torch.float64)
    last = rank == n - 1
    one = base + torch.tensor([0, 0, 1.0, 0]) * last
    order = base.flip(0) if last else base
    lopsided = base + {0: 1.0, 1: -1.0}.get(rank, 0.0)
    return [base, one, order, lopsided]


def step_trial(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    found = []
    for vector in _vectors(here.rank, here.world_size):
        mine = vector.clone().to(here.device)
        found.append(answer(mine))
        if not mine.cpu().equal(vector):
            return CHANGED
    return found


def step_expected(n: int) -> list[list[bool]]:
    """Compare all ranks' vectors in one process."""
    everyone = [_vectors(rank, n) for rank in range(n)]
    columns = zip(*everyone, strict=True)
    return [[all(mine.equal(first) for mine in column) for first, *column in columns]] * n


def _knows_itself(yours: Sequence[Any], expected: Sequence[Any], n: int) -> bool:
    """Tell whether each rank says only whether it is equal to rank 0."""
    first = _vectors(0, n)
    alone = [
        [mine.equal(its) for mine, its in zip(_vectors(rank, n), first, strict=True)]
        for rank in range(n)
    ]
    return list(yours) == alone


STEP = Exercise(
    id="06-2",
    title="Compare without collecting",
    answer="in_step",
    trial=step_trial,
    expected=step_expected,
    forbids=("all_gather", "all_gather_object", "gather", "gather_object"),
    goals=(
        Goal("collectives", most=lambda n: 2 * 4),
        Goal("bytes sent", most=lambda n: 2 * 4 * 4 * DOUBLE),
    ),
    mistakes=(
        Mistake(
            "It changes vector: broadcast overwrites what it is given, and from then on the rank "
            "has rank 0's weights. Broadcast a copy, vector.clone().",
            when=lambda yours, expected, n: any(isinstance(y, str) for y in yours),
        ),
        Mistake(
            "Each rank knows only whether it is equal to rank 0 itself, and rank 0 always is. Let "
            "the ranks put their answers together.",
            when=_knows_itself,
        ),
        Mistake(
            "It is always True: one rank that agrees is enough for it, and rank 0 agrees with "
            "itself. All must agree: take the MIN, not the MAX.",
            when=lambda yours, expected, n: all(y == [True] * 4 for y in yours),
        ),
        Mistake(
            "It compares sums: the same numbers in another order have the same sum.",
            when=lambda yours, expected, n: all(y == [True, False, True, False] for y in yours),
        ),
        Mistake(
            "A tensor is not True or False: end with .item() or bool(…).",
            when=lambda yours, expected, n: any(
                isinstance(value, torch.Tensor) for mine in yours for value in mine
            ),
        ),
        Mistake(
            "The result is right, but it takes more collectives than it has to: if all are equal "
            "to rank 0, all are equal.",
            missed="collectives",
        ),
    ),
    hints=(
        "If everybody is equal to rank 0, everybody is equal. So one vector has to travel, not n.",
        "Broadcast a copy of rank 0's vector and compare it with your own. Then all ranks have to "
        "learn whether all have said yes: that is an all_reduce of one number.",
        "first = vector.clone(); dist.broadcast(first, src=0); agree = torch.tensor(int(first."
        "equal(vector)), device=device); dist.all_reduce(agree, op=dist.ReduceOp.MIN); and return "
        "agree.item() == 1.",
    ),
)


# -- 06-3: batches of unequal size --------------------------------------------------------------


def _count(rank: int) -> int:
    return 2 * rank + 1


def _net(ranks: Sequence[int], n: int, device: torch.device | None = None) -> nn.Linear:
    """Return a network with the gradient of the mean loss over the images of some ranks.

    An image of rank r is one number, n * n * 10**r, and there are n * n images on all ranks: so
    the digits of the weight's gradient say how many of each rank are in it.
    """
    net = nn.Linear(1, 1, dtype=torch.float64, device=device)
    numbers = [float(n * n * 10**r) for r in ranks for _ in range(_count(r))]
    net(torch.tensor(numbers, dtype=torch.float64, device=device).view(-1, 1)).mean().backward()
    return net


def _flat(net: nn.Module) -> torch.Tensor:
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    return torch.cat([grad.flatten() for grad in grads])


def weighted_trial(answer: Callable[[nn.Module, int], Any], here: Here) -> list[float]:
    """Average the gradients; return the weight's and the bias's."""
    net = _net([here.rank], here.world_size, here.device)
    answer(net, _count(here.rank))
    return [round(number, 6) for number in _flat(net).tolist()]  # the last digits may vary


def weighted_expected(n: int) -> list[list[float]]:
    """Take the gradient over all images in one process."""
    return [_flat(_net(range(n), n)).tolist()] * n


def _weighted(mix: Callable[[list[torch.Tensor], int, int], torch.Tensor]) -> When:
    """Return the predicate of ``mix(own gradients, rank, n)`` on each rank."""

    def when(yours: Sequence[Any], expected: Sequence[Any], n: int) -> bool:
        own = [_flat(_net([r], n)) for r in range(n)]
        return all(
            torch.allclose(own[0].new_tensor(y), mix(own, r, n)) for r, y in enumerate(yours)
        )

    return when


def _total(own: list[torch.Tensor]) -> torch.Tensor:
    """Add up the sums over each rank's images."""
    return torch.stack([_count(r) * g for r, g in enumerate(own)]).sum(0)


WEIGHTED = Exercise(
    id="06-3",
    title="Weigh the ranks",
    answer="average_weighted",
    trial=weighted_trial,
    expected=weighted_expected,
    goals=(Goal("collectives", most=lambda n: 3),),
    mistakes=(
        Mistake(
            "That is the mean of the ranks' means: a rank with one image counts as much as a rank "
            "with seven. Multiply by count before adding up.",
            when=_weighted(lambda own, rank, n: torch.stack(own).mean(0)),
        ),
        Mistake(
            "It adds up count times the gradient, and divides by nothing. How many images are "
            "there on all ranks?",
            when=_weighted(lambda own, rank, n: _total(own)),
        ),
        Mistake(
            "The weighted sum is divided by the number of ranks. Divide it by the number of "
            "images, on all ranks together.",
            when=_weighted(lambda own, rank, n: _total(own) / n),
        ),
        Mistake(
            "Each rank divides by its own count, so every rank has another gradient, and from the "
            "next step on another model. Add up the counts over all ranks first.",
            when=_weighted(lambda own, rank, n: _total(own) / _count(rank)),
        ),
        Mistake(
            "Each rank has only weighed its own gradient: nothing has been added up.",
            when=_weighted(lambda own, rank, n: own[rank] * _count(rank) / n**2),
        ),
        Mistake(
            "The gradients are as they were. An expression such as p.grad * … makes a new tensor: "
            "change p.grad itself, with *= and all_reduce.",
            when=_weighted(lambda own, rank, n: own[rank]),
        ),
        Mistake(
            "The result is right, but the counts are added up anew for each parameter: once is "
            "enough.",
            missed="collectives",
        ),
    ),
    hints=(
        "The mean over all images is the sum over all images, divided by how many there are. A "
        "mean times its count is a sum again.",
        "First add up the counts over the ranks. Then each gradient times count / total, added up "
        "over the ranks, is the mean.",
        "total = torch.tensor(count, device=device); dist.all_reduce(total); then for each p: "
        "p.grad *= count / total.item() and dist.all_reduce(p.grad).",
    ),
)


# -- 06-4: several buckets ----------------------------------------------------------------------

#: Numbers in each parameter, first to last, and the cap of a bucket.
NUMBERS = (2, 3, 4, 1, 5, 8)
CAP = 6
#: Their sizes, a list for each bucket, in the order in which they were sent.
Buckets = list[list[int]]


def buckets_trial(answer: Callable[[nn.Module, int], Any], here: Here) -> dict[str, Any]:
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


def buckets_expected(n: int) -> list[dict[str, Any]]:
    return [{"buckets": _fill(BACKWARDS, _too_much), "averaged": len(NUMBERS)}] * n


def _filled(wrong: Buckets) -> When:
    return lambda yours, expected, n: all(y["buckets"] == wrong for y in yours)


BUCKETS = Exercise(
    id="06-4",
    title="Several buckets",
    answer="average_in_buckets",
    trial=buckets_trial,
    expected=buckets_expected,
    goals=(Goal("collectives", exactly=lambda n: len(_fill(BACKWARDS, _too_much))),),
    mistakes=(
        Mistake(
            "An empty bucket was sent: before the first parameter, which is larger than cap, there "
            "is nothing to send.",
            when=lambda yours, expected, n: failed(yours, "RuntimeError", "ValueError"),
        ),
        Mistake(
            "What is in the bucket when the loop ends is never sent: average it too.",
            when=_filled(_fill(BACKWARDS, _too_much)[:-1]),
        ),
        Mistake(
            "These buckets are filled from the first parameter on. backward() begins at the last: "
            "reversed(list(net.parameters())).",
            when=_filled(_fill(NUMBERS, _too_much)),
        ),
        Mistake(
            "A bucket may hold exactly cap numbers: close it only when it would hold more.",
            when=_filled(_fill(BACKWARDS, lambda held, size: held + size >= CAP)),
        ),
        Mistake(
            "Every parameter has a bucket of its own: let them collect until the next one would be "
            "too much.",
            when=_filled([[size] for size in BACKWARDS]),
        ),
        Mistake(
            "A bucket of several parameters holds more than cap numbers: ask whether the next one "
            "still fits *before* you put it in.",
            when=lambda yours, expected, n: any(
                len(bucket) > 1 and sum(bucket) > CAP for y in yours for bucket in y["buckets"]
            ),
        ),
    ),
    hints=(
        "Keep two things while you go through the parameters: a list, and how many numbers are in "
        "it. p.numel() says how many a parameter has.",
        "Before you put a parameter in: if the bucket is not empty and this one would make it "
        "larger than cap, send the bucket and begin a new one. After the loop, send the last one.",
        "for p in reversed(list(net.parameters())): if bucket and size + p.numel() > cap: "
        "average_bucket(bucket) and bucket, size = [], 0; then bucket.append(p) and size += "
        "p.numel(). After the loop average_bucket(bucket).",
    ),
)

EXERCISES = (SIZE, STEP, WEIGHTED, BUCKETS)
