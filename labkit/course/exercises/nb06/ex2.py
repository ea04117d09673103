"""Exercise 06-2: write a DDP of your own: equal weights at the start, averaged gradients in a
hook.

Rank r's numbers are small whole ones that depend on r, so that means and sums over ranks are exact
and tell who is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from ...mistakes import near, would_give


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


def trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    net = _net(here.rank).to(here.device)
    answer(net)
    net(_input(here.rank).to(here.device)).sum().backward()
    return _state(net)


def _wrapped(n: int) -> torch.Tensor:
    return torch.stack([_step(0, r) for r in range(n)]).mean(dim=0)


def expected(n: int) -> list[torch.Tensor]:
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


EXERCISE = Exercise(
    id="06-2",
    title="A DDP of your own",
    answer="wrap",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", most=lambda n: 2 * PARAMETERS),),
    mistakes=(
        Mistake(
            "Some ranks wait in a broadcast that others do not call. Every rank has to call "
            "every broadcast and every all_reduce, in the same order: is one of them under an if?",
            stuck=r"waits? in broadcast",
            shown_by={
                "broadcast on rank 0 only": edit(
                    "dist.broadcast(p.data, 0)",
                    """
                    if rank == 0:
                        dist.broadcast(p.data, 0)
                    """,
                ),
            },
        ),
        Mistake(
            "The ranks still have different weights: in wrap, broadcast p.data of every "
            "parameter from rank 0.",
            when=_weights_differ,
            shown_by={"no broadcast": edit("dist.broadcast(p.data, 0)", "")},
        ),
        Mistake(
            "The weights are the mean over the ranks. DDP takes rank 0's: broadcast them.",
            when=_weights_are_the_mean,
            shown_by={
                "averages the weights": edit(
                    "dist.broadcast(p.data, 0)",
                    """
                    dist.all_reduce(p.data)
                    p.data /= world_size
                    """,
                ),
            },
        ),
        Mistake(
            "Every rank still has its own gradient. Register the hook on every parameter, and "
            "let it all_reduce p.grad itself, not a copy.",
            when=would_give(lambda n: [_step(0, r) for r in range(n)]),
            shown_by={
                "no hook": body("""
                    for p in net.parameters():
                        dist.broadcast(p.data, 0)
                """),
                "a result that nobody uses": edit(
                    """
                    dist.all_reduce(p.grad)
                    p.grad /= world_size
                    """,
                    """
                    mean = p.grad.clone()
                    dist.all_reduce(mean)
                    mean /= world_size
                    """,
                ),
            },
        ),
        Mistake(
            "The gradient is the sum over the ranks. DDP gives the mean: divide by world_size.",
            when=would_give(lambda n: _scaled(n, n)),
            shown_by={
                "the sum": body("""
                    for p in net.parameters():
                        dist.broadcast(p.data, 0)
                        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
                """),
            },
        ),
    ),
    also_wrong={
        "too much": Wrong(
            edit(
                "def average(p):",
                """
                def average(p):
                    dist.barrier()
                """,
            ),
            says="goal: collectives",
        ),
    },
    another=body("""
        params = list(net.parameters())
        flat = torch.cat([p.detach().flatten() for p in params])
        dist.broadcast(flat, 0)
        for p, part in zip(params, flat.split([p.numel() for p in params])):
            p.data.copy_(part.view_as(p))

        def share(p):
            work = dist.all_reduce(p.grad, async_op=True)
            work.wait()
            p.grad.div_(dist.get_world_size())

        for p in params:
            p.register_post_accumulate_grad_hook(share)
    """),
    hints=(
        "Two things for every parameter of net.parameters(): a broadcast now, and a hook for "
        "later.",
        "dist.broadcast(p.data, 0) makes a parameter equal to rank 0's. The hook gets the "
        "parameter: it adds up p.grad over the ranks and divides it by their number.",
        "Define average(p) inside wrap: an all_reduce of p.grad, then a division in place. Then, "
        "for every p: the broadcast, and p.register_post_accumulate_grad_hook(average).",
    ),
)
