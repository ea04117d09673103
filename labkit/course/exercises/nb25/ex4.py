"""Exercise 25-4: write a communication hook that halves the bytes and counts them.

Rank r's numbers are small whole ones that depend on r, so that means and sums over ranks are exact
and show which ranks are in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, every_rank, near, rank_simulated, some_rank
from ...trial_tools import noted

#: Numbers of the gradient in the trial: exact in bfloat16, also divided by 2, 3, 4, 6 and 8, and
#: then not always whole. The last one is beyond float16.
SHAPE = (1, 6)


def _sixes(rank: int) -> torch.Tensor:
    return 6.0 * (rank + 1) * torch.tensor([[1.0, 2.0, 0.0, 1.0, -1.0, 2.0**16]])


#: What the state has counted before, in buckets of earlier steps.
BEFORE = 1000


class NoFuture(TypeError):
    """Say that a hook returned something other than a future."""


class Waited(RuntimeError):
    """Say that a hook waited for its all-reduce."""


class NoGradient(TypeError):
    """Say that a hook's future holds something other than a gradient."""


def _guarded(answer: Callable[..., Any], errors: list[Exception]) -> Callable[..., Any]:
    """Return a hook that calls the answer, and keeps from DDP what would end its process."""

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses other annotations
        gradient = bucket.buffer()
        try:
            with noted() as notes:
                future = answer(state, bucket)
            if not isinstance(future, torch._C.Future):  # what get_future() gives, too
                raise NoFuture(f"the hook returned no future, but {type(future).__name__}")
            if notes.waits:
                raise Waited("the hook has waited for its all-reduce")
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


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    from torch.nn.parallel import DistributedDataParallel

    errors: list[Exception] = []

    net = nn.Linear(SHAPE[1], 1, bias=False).to(here.device)
    ddp = DistributedDataParallel(net)
    state = {"bytes": BEFORE}
    ddp.register_comm_hook(state, _guarded(answer, errors))
    ddp(_sixes(here.rank).to(here.device)).sum().backward()
    if errors:
        raise errors[0]
    assert net.weight.grad is not None
    return [net.weight.grad, state["bytes"] - BEFORE]


def _mean(n: int) -> torch.Tensor:
    return torch.stack([_sixes(r) for r in range(n)]).mean(dim=0)


def expected(n: int) -> list[Any]:
    return [[_mean(n), SHAPE[1] * 2]] * n


def _gives(gradient: Callable[[int, int], torch.Tensor]) -> Predicate:
    """Return the predicate of an answer after which a rank's is ``gradient(rank, n)``."""
    return rank_simulated(gradient, lambda own: own[0])


EXERCISE = Exercise(
    id="25-4",
    title="A hook of your own",
    answer="bf16_hook",
    trial=trial,
    expected=expected,
    goals=(
        Goal("collectives", exactly=lambda n: 1),
        Goal("bytes sent", most=lambda n: SHAPE[1] * 2),
    ),
    mistakes=(
        Mistake(
            "A hook returns a future, which DDP waits for: all_reduce(…, async_op=True) gives a "
            "work, and work.get_future().then(f) a future with what f returns.",
            raises=r"^NoFuture: ",
        ),
        Mistake(
            "The hook waits for its all-reduce, and backward() waits for the hook: nothing "
            "overlaps. Start it with async_op=True, and return a future of its result.",
            raises=r"^Waited: ",
        ),
        Mistake(
            "The future has to hold one float32 tensor of the bucket's shape. That of all_reduce "
            "holds a list with one bfloat16 tensor: take it out, and convert it to float32.",
            raises=r"^NoGradient: ",
        ),
        Mistake(
            "Every rank keeps its own gradient: the hook replaces DDP's all-reduce, so it has to "
            "call all_reduce itself.",
            when=_gives(lambda rank, n: _sixes(rank)) | _gives(lambda rank, n: _sixes(rank) / n),
        ),
        Mistake(
            "The largest number has become inf: float16 ends at 65,504. bfloat16 has the range of "
            "float32.",
            when=some_rank(lambda mine, its: bool(mine[0].isinf().any())),
        ),
        Mistake(
            "The gradient is the sum over the ranks. A hook has to divide by world_size itself.",
            when=_gives(lambda rank, n: _mean(n) * n),
        ),
        Mistake(
            "The gradient is divided by world_size twice.",
            when=_gives(lambda rank, n: _mean(n) / n),
        ),
        Mistake(
            'The gradient is right, but the count is not: state["bytes"], which holds those of '
            "earlier buckets, has to grow by the nbytes of the bfloat16 tensor that is reduced.",
            when=every_rank(lambda mine, its: near(mine[0], its[0])),
        ),
    ),
    hints=(
        "Three steps: make the buffer small, all-reduce the small one asynchronously, and turn "
        "what comes back into float32 again.",
        "small = bucket.buffer().to(torch.bfloat16) / world_size. work = dist.all_reduce(small, "
        "async_op=True). Its future holds a list with the summed tensor: .then(lambda future: …).",
        'state["bytes"] grows by small.nbytes. In the function for then, future.value() is '
        "that list: take its tensor, and convert it with float().",
    ),
)
