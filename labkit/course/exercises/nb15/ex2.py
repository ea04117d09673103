"""Exercise 15-2: recompute blocks in backward, and save one input per block."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Here, Mistake
from ...mistakes import every_rank

#: The widths between the blocks of each case: the first is that of x.
CASES = ((4, 6, 3, 5), (5, 2))
#: Rows of x.
ROWS = 3
NUMBER = 4


class Watched:
    """Blocks of the case's widths, each sharded, whose events are noted: ``("f", k)`` when block k
    begins to compute forward, again in backward too, and ``("b", k)`` when backward reaches it."""

    def __init__(self, widths: Sequence[int], here: Here) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(here.device.type, (here.world_size,))
        torch.manual_seed(len(widths))
        self.blocks: list[nn.Module] = []
        self.events: list[tuple[str, int]] = []
        for k, (before, after) in enumerate(pairwise(widths)):
            layers = [nn.Linear(before, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, after)]
            block = nn.Sequential(*layers).to(here.device)
            fully_shard(block, mesh=mesh)
            layers[0].register_forward_pre_hook(self._forward(k))
            block.register_forward_hook(self._backward(k))
            self.blocks.append(block)

    def _forward(self, k: int) -> Callable[..., None]:
        return lambda layer, args: self.events.append(("f", k))

    def _backward(self, k: int) -> Callable[..., None]:
        def hook(block: nn.Module, args: Any, out: torch.Tensor) -> None:
            if out.requires_grad:
                out.register_hook(lambda gradient: self.events.append(("b", k)))

        return hook

    def parameters(self) -> list[Any]:
        return [p for block in self.blocks for p in block.parameters()]

    def saved_by(self, call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, int]:
        """Call; return the result, and the bytes saved for backward without the parameters."""
        sizes: dict[int, int] = {}

        def pack(t: torch.Tensor) -> torch.Tensor:
            memory = t.untyped_storage()
            if memory.data_ptr() not in {_place(p) for p in self.parameters()}:
                sizes[memory.data_ptr()] = memory.nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = call()
        return out, sum(sizes.values())

    def most_at_once(self, begin: int) -> int:
        """Return how many blocks that were computed again in backward wait for it at most; the
        events of backward begin at ``begin``."""
        waiting: set[int] = set()
        most = 0
        for kind, k in self.events[begin:]:
            if kind == "f":
                waiting.add(k)
            else:
                waiting -= {other for other in waiting if other > k}
            most = max(most, len(waiting))
        return most


def _place(p: Any) -> int:
    local = p.to_local() if hasattr(p, "to_local") else p
    return int(local.untyped_storage().data_ptr())


def _gradients(parameters: Sequence[Any]) -> list[torch.Tensor | None]:
    """Return this rank's part of each gradient, and forget the gradients."""
    found = [None if p.grad is None else p.grad.to_local().clone() for p in parameters]
    for p in parameters:
        p.grad = None
    return found


def _equal(found: Sequence[torch.Tensor | None], right: Sequence[torch.Tensor | None]) -> bool:
    return all(
        a is not None and b is not None and a.allclose(b, rtol=1e-4, atol=1e-6)
        for a, b in zip(found, right, strict=True)
    )


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Compare a plain pass and the answer's, on the same blocks with the same dropout."""
    found: list[Any] = []
    for widths in CASES:
        watched = Watched(widths, here)
        generator = torch.Generator().manual_seed(50 + here.rank)
        x = torch.randn(ROWS, widths[0], generator=generator).to(here.device)
        torch.manual_seed(here.rank)
        right = x
        for block in watched.blocks:
            right = block(right)
        right.square().mean().backward()
        wanted = _gradients(watched.parameters())
        watched.events.clear()
        torch.manual_seed(here.rank)
        out, size = watched.saved_by(functools.partial(answer, watched.blocks, x))
        begin = len(watched.events)
        out.square().mean().backward()
        gradients = _gradients(watched.parameters())
        found += [
            out.shape == right.shape and out.allclose(right, atol=1e-6),
            _equal(gradients, wanted),
            sum(g is None for g in gradients),
            size,
            watched.most_at_once(begin),
        ]
    return found


def labels(n: int) -> list[str]:
    return [
        f"{what} ({len(widths) - 1} block{'s' * (len(widths) > 2)})"
        for widths in CASES
        for what in (
            "result of the plain pass",
            "gradients of the plain pass",
            "parameters without a gradient",
            "bytes saved in forward",
            "blocks recomputed at once",
        )
    ]


def expected(n: int) -> list[list[Any]]:
    items: list[Any] = []
    for widths in CASES:
        items += [True, True, 0, NUMBER * ROWS * sum(widths[:-1]), 1]
    return [items] * n


EXERCISE = Exercise(
    id="15-2",
    title="Recompute blocks",
    answer="forward",
    setup="""
        from collections.abc import Sequence

        from torch import nn
        from torch.utils.checkpoint import checkpoint
    """,
    trial=trial,
    expected=expected,
    entries=labels,
    mistakes=(
        Mistake(
            "The result is not that of the plain pass: run x through every block, in order.",
            when=every_rank(lambda mine, its: not mine[0]),
        ),
        Mistake(
            "The result requires no gradient, so backward has nowhere to go. Either no block has "
            "run, or forward ran without gradients, or checkpoint with use_reentrant=True got an "
            "x that requires none: run every block, with use_reentrant=False.",
            raises=r"does not require grad and does not have a grad_fn",
        ),
        Mistake(
            "A layer of a block was called by itself, or block.forward. FSDP gathers a block's "
            "parameters in hooks that only a call of the block runs: checkpoint(block, x, …).",
            raises=r"mixed torch\.Tensor and DTensor",
        ),
        Mistake(
            "Some parameters get no gradient: the result of a block was cut off from the graph. "
            "Pass it to the next block as it is, without detach.",
            when=every_rank(lambda mine, its: mine[2] > 0),
        ),
        Mistake(
            "The result is right, but the gradients belong to another dropout: the random number "
            "generator has to be in the same state when a block is computed again. That is what "
            "preserve_rng_state=True, the default, is for.",
            when=every_rank(lambda mine, its: mine[0] and not mine[1] and mine[3:5] == its[3:5]),
        ),
        Mistake(
            "All blocks are computed again at once when backward begins, so the activations of all "
            "of them exist then, as without recomputing. Call checkpoint once per block.",
            when=every_rank(lambda mine, its: mine[4] == len(CASES[0]) - 1),
        ),
        Mistake(
            "Forward saves more than one input per block. Every block has to run inside "
            "checkpoint, the last one too.",
            when=every_rank(lambda mine, its: mine[3] > its[3]),
        ),
    ),
    hints=(
        "A plain pass is a loop: x = block(x). Which call replaces block(x), so that only its "
        "input is saved?",
        "torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False) calls function(x). "
        "Whatever is inside one call is computed again as a whole.",
        "One call of checkpoint per block, in the loop over all blocks: x becomes its result.",
    ),
)
