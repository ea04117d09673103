"""The exercises of notebooks 07 and 07b: DistributedDataParallel, and what is inside of it.

Rank r's numbers are small whole ones that depend on r, so that means and sums over ranks are exact
and tell who is in them. What usually goes wrong is played through in one process and compared with
what came back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ..exercise import Exercise, Goal, Here, Mistake
from ..mistakes import When, failed, near, stuck, would_give

#: Bytes of an element of float32, the type of the trials' gradients.
ITEM = 4


# -- 07-1: deal the cards ---------------------------------------------------------------------

#: (images, ranks)
DEALS = ((8, 4), (10, 4), (7, 3))


def deal_trial(answer: Callable[..., Any], here: Here) -> list[list[list[int]]]:
    return [[[int(i) for i in answer(c, r, n)] for r in range(n)] for c, n in DEALS]


def _deal(count: int, rank: int, world_size: int) -> list[int]:
    """Return what torch's own sampler deals."""
    from torch.utils.data import DistributedSampler

    images: Any = range(count)
    return list(DistributedSampler(images, world_size, rank, shuffle=False))


def deal_expected() -> list[list[list[int]]]:
    return [[_deal(c, r, n) for r in range(n)] for c, n in DEALS]


def _dealt(play: Callable[[int, int, int], list[int]]) -> When:
    """Return the predicate of dealing ``play(count, rank, world_size)``."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return bool(yours == [[play(c, r, k) for r in range(k)] for c, k in DEALS])

    return when


def _block(count: int, rank: int, world_size: int) -> list[int]:
    each = -(-count // world_size)
    return [i % count for i in range(rank * each, (rank + 1) * each)]


DEAL = Exercise(
    id="07-1",
    title="Deal the cards",
    answer="deal",
    trial=deal_trial,
    expected=deal_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "Each rank has a block of neighbours. The sampler deals like cards: rank r gets the "
            "positions r, r + n, r + 2n, …",
            when=_dealt(_block),
        ),
        Mistake(
            "The ranks do not have equally many: of ten images two ranks get three and two get "
            "two, and run out of batches first. Fill up from the beginning.",
            when=_dealt(lambda c, r, n: list(range(r, c, n))),
        ),
        Mistake(
            "Images are lost: of ten images each of four ranks has two, and nobody has images 8 "
            "and 9. Round the number of images of a rank up, not down.",
            when=_dealt(lambda c, r, n: list(range(r, c - c % n, n))),
        ),
        Mistake(
            "You fill up with the rank's own images. What is missing is dealt from the beginning: "
            "0, 1, …",
            when=_dealt(
                lambda c, r, n: (
                    (own := list(range(r, c, n))) + own[: -(-c // n)][: -(-c // n) - len(own)]
                )
            ),
        ),
    ),
    hints=(
        "How many images does each rank get? count divided by world_size, rounded up.",
        "Write the list of all cards first, one after the other, beginning again at 0 after the "
        "last; then every world_size-th of it, from the rank's own place on.",
        "each = -(-count // world_size); cards = [i % count for i in range(each * world_size)]; "
        "and cards[rank::world_size]",
    ),
)


# -- 07-2: a DDP of your own ------------------------------------------------------------------


def _net(rank: int) -> nn.Sequential:
    """Return a linear network of four parameters, all of whose numbers tell the rank."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.no_grad():
        for i, p in enumerate(net.parameters(), 1):
            p.copy_((torch.arange(p.numel()) + i).view(p.shape) * (rank + 1))
    return net


def _input(rank: int) -> torch.Tensor:
    return torch.tensor([[1.0, 2.0], [0.0, 1.0]]) * (rank + 1)


def _state(net: nn.Module) -> torch.Tensor:
    """Return two rows: weights and gradients (zero where there is none)."""
    pairs = [(p, torch.zeros_like(p) if p.grad is None else p.grad) for p in net.parameters()]
    rows = [torch.cat([pair[k].detach().flatten() for pair in pairs]) for k in (0, 1)]
    return torch.stack(rows)


def _step(weights: int, data: int) -> torch.Tensor:
    """Return weights and gradients of one process with the weights and the data of two ranks."""
    net = _net(weights)
    net(_input(data)).sum().backward()
    return _state(net)


def wrap_trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    net = _net(here.rank).to(here.device)
    answer(net)
    net(_input(here.rank).to(here.device)).sum().backward()
    return _state(net)


def _wrapped(n: int) -> torch.Tensor:
    return torch.stack([_step(0, r) for r in range(n)]).mean(dim=0)


def wrap_expected(n: int) -> list[torch.Tensor]:
    """Return weights of rank 0, and the mean of the gradients that they have on all data."""
    return [_wrapped(n)] * n


def _scaled(n: int, factor: float) -> list[torch.Tensor]:
    weights, gradients = _wrapped(n)
    return [torch.stack([weights, gradients * factor])] * n


def _weights_differ(yours: Sequence[Any], expected: Any, n: int) -> bool:
    return all(near(y[0], _step(r, r)[0]) for r, y in enumerate(yours))


def _weights_are_the_mean(yours: Sequence[Any], expected: Any, n: int) -> bool:
    mean = torch.stack([_step(r, r)[0] for r in range(n)]).mean(dim=0)
    return all(near(y[0], mean) for y in yours)


#: Parameters of the network.
PARAMETERS = 4

WRAP = Exercise(
    id="07-2",
    title="A DDP of your own",
    answer="wrap",
    trial=wrap_trial,
    expected=wrap_expected,
    goals=(Goal("collectives", most=lambda n: 2 * PARAMETERS),),
    mistakes=(
        Mistake(
            "Ranks wait for one another: every rank has to call every broadcast and every "
            "all-reduce, in the same order. Is there an if rank around one?",
            when=stuck,
        ),
        Mistake(
            "The ranks still have weights of their own: broadcast every parameter from rank 0 "
            "before the training begins, p.data.",
            when=_weights_differ,
        ),
        Mistake(
            "The weights are the mean of all ranks'. DDP takes those of rank 0: broadcast them.",
            when=_weights_are_the_mean,
        ),
        Mistake(
            "Every rank has its own gradient only. The hook has to be registered on every "
            "parameter, and to all-reduce p.grad in place.",
            when=would_give(lambda n: [_step(0, r) for r in range(n)]),
        ),
        Mistake(
            "The gradient is the sum over the ranks. DDP gives the mean: divide by world_size.",
            when=would_give(lambda n: _scaled(n, n)),
        ),
    ),
    hints=(
        "Two things for every parameter of net.parameters(): a broadcast now, and a hook for "
        "later.",
        "dist.broadcast(p.data, 0) makes a parameter equal to rank 0's. The hook gets the "
        "parameter: it adds up p.grad over the ranks, and divides it by their number.",
        "def average(p): dist.all_reduce(p.grad); p.grad /= world_size. And for every p: "
        "dist.broadcast(p.data, 0), p.register_post_accumulate_grad_hook(average).",
    ),
)


# -- 07-3: weigh unequal batches --------------------------------------------------------------


def _batch(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rank + 1 inputs of three numbers, and their labels, 0 or 1."""
    inputs = (torch.arange(3.0 * (rank + 1)).view(-1, 3) + rank) % 5 - 1.5
    return inputs, torch.arange(rank + 1) % 2


def _head() -> torch.Tensor:
    return torch.tensor([[0.5, -0.5], [0.25, 0.5], [-0.5, 0.0]])


def fair_trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    """Return this rank's own gradient of a matrix that turns inputs into scores."""
    head = _head().to(here.device).requires_grad_()
    inputs, labels = (tensor.to(here.device) for tensor in _batch(here.rank))
    answer(inputs @ head, labels).backward()
    assert head.grad is not None
    return head.grad


def _local(rank: int, factor: float) -> torch.Tensor:
    """Return the gradient of the loss that a rank's images add up to, times a factor."""
    head = _head().requires_grad_()
    inputs, labels = _batch(rank)
    (nn.functional.cross_entropy(inputs @ head, labels, reduction="sum") * factor).backward()
    assert head.grad is not None
    return head.grad


def _images(n: int) -> int:
    return sum(r + 1 for r in range(n))


def fair_expected(n: int) -> list[torch.Tensor]:
    """Return gradients whose mean over the ranks is that of all images' mean loss."""
    return [_local(r, n / _images(n)) for r in range(n)]


FAIR = Exercise(
    id="07-3",
    title="Weigh unequal batches",
    answer="fair_loss",
    trial=fair_trial,
    expected=fair_expected,
    goals=(
        Goal("collectives", exactly=lambda n: 1),
        Goal("bytes sent", most=lambda n: 8),
    ),
    mistakes=(
        Mistake(
            "This is the mean over a rank's own images. An image on a rank with few of them then "
            "counts more than one on a rank with many: divide by the number of all images.",
            when=would_give(lambda n: [_local(r, 1 / (r + 1)) for r in range(n)]),
        ),
        Mistake(
            "The gradient is n times too small: DDP divides by the number of ranks once more, so "
            "multiply by world_size.",
            when=would_give(lambda n: [_local(r, 1 / _images(n)) for r in range(n)]),
        ),
        Mistake(
            "It is the sum of the images' losses, so the gradient grows with the batch. Divide by "
            "the number of images on all ranks.",
            when=would_give(lambda n: [_local(r, 1) for r in range(n)]),
        ),
        Mistake(
            "You divide by this rank's images times the ranks, as if all had equally many. Ask "
            "the others: all_reduce the number of images.",
            when=would_give(lambda n: [_local(r, 1 / (n * (r + 1))) for r in range(n)]),
        ),
    ),
    hints=(
        "What DDP makes of the ranks' losses L is (L0 + L1 + …) / n. What must L be for that to "
        "be the sum over all images, divided by their number?",
        "L is the sum over this rank's images, times n, divided by the number of all images. An "
        "all_reduce of the ranks' numbers of images tells that.",
        "count = torch.tensor(float(len(labels)), device=scores.device); dist.all_reduce(count); "
        'F.cross_entropy(scores, labels, reduction="sum") * world_size / count',
    ),
)


# -- 07-4: accumulate -------------------------------------------------------------------------

#: Batches of a rank in the trial.
BATCHES = 3


def _accumulating(rank: int) -> list[torch.Tensor]:
    """Return the inputs of a rank's batches, whole numbers that tell rank and batch."""
    return [torch.tensor([[1.0, k + 1.0]]) * (rank + 1) * (k + 1) for k in range(BATCHES)]


def _line() -> nn.Linear:
    net = nn.Linear(2, 1, bias=False)
    nn.init.ones_(net.weight)
    return net


def accumulate_trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    """Return the gradient; a hook in Python lets labkit count the all-reduces."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    net = _line().to(here.device)
    ddp = DistributedDataParallel(net)
    ddp.register_comm_hook(None, allreduce_hook)
    answer(
        ddp, lambda batch: ddp(batch).sum(), [x.to(here.device) for x in _accumulating(here.rank)]
    )
    return torch.zeros(1, 2) if net.weight.grad is None else net.weight.grad


def _own(rank: int) -> torch.Tensor:
    """Return the sum of the gradients of a rank's batches, which are their inputs."""
    return torch.stack(_accumulating(rank)).sum(dim=0)


def _all(n: int) -> torch.Tensor:
    return torch.stack([_own(r) for r in range(n)]).mean(dim=0)


def accumulate_expected(n: int) -> list[torch.Tensor]:
    return [_all(n) / BATCHES] * n


def _last(n: int) -> list[torch.Tensor]:
    mean = torch.stack([_accumulating(r)[-1] for r in range(n)]).mean(dim=0)
    return [mean / BATCHES] * n


ACCUMULATE = Exercise(
    id="07-4",
    title="Accumulate",
    answer="accumulate",
    trial=accumulate_trial,
    expected=accumulate_expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "The gradient is right, but the ranks meet after every batch. Put forward and "
            "backward of all batches but the last under net.no_sync(), the forward too.",
            missed="collectives",
        ),
        Mistake(
            "The ranks have gradients of their own: no backward is left that averages. The last "
            "batch belongs outside of no_sync().",
            when=would_give(lambda n: [_own(r) / BATCHES for r in range(n)]),
        ),
        Mistake(
            "The gradient is the sum over the batches: divide each loss by len(batches).",
            when=would_give(lambda n: [_all(n)] * n),
        ),
        Mistake(
            "Only the last batch is in the gradient: zero_grad() throws away what the others have "
            "added up.",
            when=would_give(_last),
        ),
    ),
    hints=(
        "backward() adds to .grad, and without no_sync() it averages what is there then.",
        "All batches but the last under one with net.no_sync():, the last one after it. Each "
        "loss is divided by the number of batches.",
        "*rest, last = batches; with net.no_sync(): for batch in rest: "
        "(loss_of(batch) / len(batches)).backward(); then the same line for last, outside.",
    ),
)


# -- 07-5: fill the buckets (07b) ---------------------------------------------------------------

SIZES = (400, 40, 800, 80, 600, 60, 200)
CAPS = (1, 700, 860, 10_000)


def fill_trial(answer: Callable[..., Any], here: Here) -> list[list[int]]:
    return [[int(size) for size in answer(list(SIZES), cap)] for cap in CAPS]


def fill(sizes: Sequence[int], cap: int) -> list[int]:
    """Fill buckets as DDP does after its first step."""
    buckets: list[int] = []
    for size in reversed(sizes):
        if not buckets or buckets[-1] >= cap:
            buckets.append(0)
        buckets[-1] += size
    return buckets


def fill_expected() -> list[list[int]]:
    return [fill(SIZES, cap) for cap in CAPS]


def _filled(play: Callable[[Sequence[int], int], list[int]]) -> When:
    def when(yours: Any, expected: Any, n: int) -> bool:
        return bool(yours == [play(SIZES, cap) for cap in CAPS])

    return when


def _never_over(sizes: Sequence[int], cap: int) -> list[int]:
    buckets: list[int] = []
    for size in reversed(sizes):
        if not buckets or buckets[-1] + size > cap:
            buckets.append(0)
        buckets[-1] += size
    return buckets


FILL = Exercise(
    id="07-5",
    title="Fill the buckets",
    answer="fill",
    trial=fill_trial,
    expected=fill_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "You begin with the first parameter. The backward pass has the gradients of the last "
            "layer first: go through sizes from the end.",
            when=_filled(lambda sizes, cap: fill(sizes[::-1], cap)),
        ),
        Mistake(
            "Your buckets stay below the cap. DDP closes a bucket when it holds cap bytes or "
            "more: the gradient that makes it full is in it.",
            when=_filled(_never_over),
        ),
        Mistake(
            "There is an empty bucket at the end: open a new one only when a gradient needs it.",
            when=lambda yours, expected, n: any(0 in buckets for buckets in yours),
        ),
        Mistake(
            "Some gradients are in no bucket: the last bucket counts even if it is not full.",
            when=lambda yours, expected, n: any(sum(b) < sum(SIZES) for b in yours),
        ),
    ),
    hints=(
        "Keep a list of buckets. A gradient goes into the last one, unless that is full.",
        "Go through reversed(sizes). If there is no bucket yet or the last one holds cap bytes "
        "or more, append a new one; then add the size to the last.",
        "for size in reversed(sizes): if not buckets or buckets[-1] >= cap: buckets.append(0); "
        "buckets[-1] += size",
    ),
)


# -- 07-6: statistics of all ranks (07b) --------------------------------------------------------


def _rows(rank: int) -> torch.Tensor:
    """Return rank + 1 rows of three whole numbers."""
    return (torch.arange(3.0 * (rank + 1)).view(-1, 3) * (rank + 2)) % 7 + rank


def statistics_trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    mean, variance = answer(_rows(here.rank).to(here.device))
    return torch.stack([mean, variance])


def _statistics(rows: torch.Tensor) -> torch.Tensor:
    return torch.stack([rows.mean(dim=0), rows.var(dim=0, unbiased=False)])


def _together(n: int) -> torch.Tensor:
    return torch.cat([_rows(r) for r in range(n)])


def statistics_expected(n: int) -> list[torch.Tensor]:
    return [_statistics(_together(n))] * n


def _mean_of_statistics(n: int) -> torch.Tensor:
    return torch.stack([_statistics(_rows(r)) for r in range(n)]).mean(dim=0)


def _weighed_statistics(n: int) -> torch.Tensor:
    """Return the right mean, and the mean variance within the ranks."""
    rows = len(_together(n))
    parts = [_statistics(_rows(r)) * len(_rows(r)) / rows for r in range(n)]
    return torch.stack(parts).sum(dim=0)


def _unbiased(n: int) -> torch.Tensor:
    rows = _together(n)
    return torch.stack([rows.mean(dim=0), rows.var(dim=0)])


STATISTICS = Exercise(
    id="07-6",
    title="Statistics of all ranks",
    answer="global_statistics",
    trial=statistics_trial,
    expected=statistics_expected,
    goals=(
        Goal("collectives", exactly=lambda n: 1),
        Goal("bytes sent", most=lambda n: 8 * (2 * 3 + 1)),
    ),
    mistakes=(
        Mistake(
            "These are the statistics of a rank's own rows: that is plain BatchNorm. Add up over "
            "the ranks.",
            when=would_give(lambda n: [_statistics(_rows(r)) for r in range(n)]),
        ),
        Mistake(
            "You take the mean of the ranks' means and variances. A rank with more rows must "
            "count more, and a mean of variances misses how far the ranks are apart: add up sums "
            "and squares instead.",
            when=would_give(lambda n: [_mean_of_statistics(n)] * n),
        ),
        Mistake(
            "The mean is right, but the variance is the mean of the ranks' variances: it misses "
            "how far the ranks' means are apart. Add up the squares instead.",
            when=would_give(lambda n: [_weighed_statistics(n)] * n),
        ),
        Mistake(
            "You divide by one less than the number of rows. BatchNorm normalizes with the plain "
            "mean of the squares, minus the mean squared.",
            when=would_give(lambda n: [_unbiased(n)] * n),
        ),
        Mistake(
            "Right, but with more than one collective. Put sums, squares and the number of rows "
            "into one tensor, and all_reduce that.",
            missed="collectives",
        ),
    ),
    hints=(
        "What adds up over ranks? Not means and variances, but sums, sums of squares, and counts.",
        "One tensor of 2c + 1 numbers: x.sum(0), (x * x).sum(0) and len(x). After the all_reduce "
        "the mean is total / count and the variance squares / count - mean².",
        "mine = torch.cat([x.sum(0), (x * x).sum(0), x.new_tensor([len(x)])]); "
        "dist.all_reduce(mine); c = x.shape[1]; mean = mine[:c] / mine[-1]; "
        "variance = mine[c:-1] / mine[-1] - mean**2",
    ),
)


# -- 07-7: deal the optimizer's state (07b) -----------------------------------------------------

LOADS = (((40, 10, 10, 10, 10), 4), ((9, 8, 7, 6, 5, 4, 3, 2, 1), 3), ((2, 9, 5, 6, 5, 9), 2))


def state_trial(answer: Callable[..., Any], here: Here) -> list[list[float]]:
    return [[float(load) for load in answer(list(sizes), n)] for sizes, n in LOADS]


def deal_state(sizes: Sequence[int], n: int) -> list[int]:
    """Deal as ZeroRedundancyOptimizer does: the largest first, each to who has least."""
    loads = [0] * n
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return loads


def state_expected() -> list[list[float]]:
    return [[float(load) for load in deal_state(sizes, n)] for sizes, n in LOADS]


def _loads(
    play: Callable[[Sequence[int], int], Sequence[float]],
) -> When:
    def when(yours: Any, expected: Any, _: int) -> bool:
        return bool(yours == [list(map(float, play(sizes, n))) for sizes, n in LOADS])

    return when


def _in_order(sizes: Sequence[int], n: int) -> list[int]:
    loads = [0] * n
    for size in sizes:
        loads[loads.index(min(loads))] += size
    return loads


STATE = Exercise(
    id="07-7",
    title="Deal the optimizer's state",
    answer="deal_state",
    trial=state_trial,
    expected=state_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "You cut parameters into pieces. ZeroRedundancyOptimizer gives every parameter to one "
            "rank as a whole.",
            when=_loads(lambda sizes, n: [sum(sizes) / n] * n),
        ),
        Mistake(
            "You deal in the order of the model. Begin with the largest: what is small can then "
            "fill the gaps.",
            when=_loads(_in_order),
        ),
        Mistake(
            "You deal them out like cards, in turns. Give each to the rank that has least so far.",
            when=_loads(
                lambda sizes, n: [sum(sorted(sizes, reverse=True)[r::n]) for r in range(n)]
            ),
        ),
        Mistake(
            "You deal them out like cards, in turns, and in the order of the model. Begin with "
            "the largest, and give each to the rank that has least so far.",
            when=_loads(lambda sizes, n: [sum(sizes[r::n]) for r in range(n)]),
        ),
    ),
    hints=(
        "Keep a list with what each rank has so far, and go through the sizes from large to small.",
        "loads.index(min(loads)) is the first of the ranks that have least.",
        "loads = [0] * world_size; for size in sorted(sizes, reverse=True): "
        "loads[loads.index(min(loads))] += size",
    ),
)


# -- 07-8: a hook of your own (07b) -------------------------------------------------------------

#: Numbers of the gradient in the trial: exact in bfloat16, also divided by 2, 3, 4, 6 and 8.
SHAPE = (1, 6)


def _twelves(rank: int) -> torch.Tensor:
    return 12.0 * (rank + 1) * torch.tensor([[1.0, 2.0, 0.0, 1.0, -1.0, 1.0]])


class NoFuture(TypeError):
    """Say that a hook returned something else than a future."""


class NoGradient(TypeError):
    """Say that a hook's future holds something else than a gradient."""


def _guarded(answer: Callable[..., Any], errors: list[Exception]) -> Callable[..., Any]:
    """Return a hook that calls the answer, and keeps from DDP what would end its process."""

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses other annotations
        gradient = bucket.buffer()
        try:
            future = answer(state, bucket)
            if not isinstance(future, torch._C.Future):  # what get_future() gives, too
                raise NoFuture(f"the hook returned no future, but {type(future).__name__}")
            found = future.wait()
            if not isinstance(found, torch.Tensor):
                raise NoGradient(f"the future holds no tensor, but {type(found).__name__}")
            if (found.dtype, found.shape) != (gradient.dtype, gradient.shape):
                raise NoGradient(f"the future holds {found.dtype} of shape {tuple(found.shape)}")
        except Exception as error:
            errors.append(error)
            future = torch.futures.Future()
            future.set_result(gradient)
        return future

    return hook


def hook_trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    from torch.nn.parallel import DistributedDataParallel

    errors: list[Exception] = []

    net = nn.Linear(SHAPE[1], 1, bias=False).to(here.device)
    ddp = DistributedDataParallel(net)
    state = {"bytes": 0}
    ddp.register_comm_hook(state, _guarded(answer, errors))
    ddp(_twelves(here.rank).to(here.device)).sum().backward()
    if errors:
        raise errors[0]
    assert net.weight.grad is not None
    return [net.weight.grad, state["bytes"]]


def hook_expected(n: int) -> list[Any]:
    mean = torch.stack([_twelves(r) for r in range(n)]).mean(dim=0)
    return [[mean, mean.numel() * 2]] * n


def _gradients(yours: Sequence[Any]) -> list[torch.Tensor]:
    return [y[0] for y in yours]


def _hooked(play: Callable[[torch.Tensor, int], Any]) -> When:
    """Return the predicate of a gradient that is ``play(mean, n)`` on every rank."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        wrong = play(expected[0][0], n)
        return all(near(y, wrong) for y in _gradients(yours))

    return when


def _kept_own(yours: Any, expected: Any, n: int) -> bool:
    own = [_twelves(r) for r in range(n)]
    return any(all(near(y, w / k) for y, w in zip(_gradients(yours), own, strict=True))
               for k in (1, n))  # fmt: skip


HOOK = Exercise(
    id="07-8",
    title="A hook of your own",
    answer="bf16_hook",
    trial=hook_trial,
    expected=hook_expected,
    goals=(
        Goal("collectives", exactly=lambda n: 1),
        Goal("bytes sent", most=lambda n: SHAPE[1] * 2),
    ),
    mistakes=(
        Mistake(
            "A hook returns a future, which DDP waits for: all_reduce(…, async_op=True) gives you "
            "a work, and work.get_future().then(f) a future with what f returns.",
            when=lambda yours, expected, n: failed(yours, "NoFuture"),
        ),
        Mistake(
            "The future has to hold one tensor of float32, as long as the bucket. That of "
            "all_reduce holds a list with one of bfloat16: take it out, and turn it into float32.",
            when=lambda yours, expected, n: failed(yours, "NoGradient"),
        ),
        Mistake(
            "Every rank keeps its own gradient: the hook takes the place of DDP's all-reduce, so "
            "it has to call one.",
            when=_kept_own,
        ),
        Mistake(
            "The gradient is the sum over the ranks. With a hook, the dividing is yours too.",
            when=_hooked(lambda mean, n: mean * n),
        ),
        Mistake(
            "The gradient is divided by world_size twice.",
            when=_hooked(lambda mean, n: mean / n),
        ),
        Mistake(
            'The gradient is right. Now count: state["bytes"] must grow by what this rank gives '
            "to the all-reduce, the nbytes of the bfloat16 tensor.",
            when=lambda yours, expected, n: all(map(near, _gradients(yours), _gradients(expected))),
        ),
    ),
    hints=(
        "Three steps: make the buffer small, all-reduce the small one asynchronously, and turn "
        "what comes back into float32 again.",
        "small = bucket.buffer().to(torch.bfloat16) / world_size. work = dist.all_reduce(small, "
        "async_op=True). Its future holds a list with the summed tensor: .then(lambda future: …).",
        'state["bytes"] += small.nbytes; future = dist.all_reduce(small, async_op=True)'
        ".get_future(); return future.then(lambda f: f.value()[0].float())",
    ),
)


EXERCISES = (DEAL, WRAP, FAIR, ACCUMULATE, FILL, STATISTICS, STATE, HOOK)
