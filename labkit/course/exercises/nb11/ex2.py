"""Exercise 11-2: resume in the middle of an epoch, with the images that are left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DistributedSampler

from ...exercise import Exercise, Here, Mistake
from ...mistakes import rank_simulated

ITEMS, EPOCH, DONE, BATCH = 41, 3, 3, 2


def _sampler(rank: int, n: int) -> DistributedSampler[int]:
    return DistributedSampler(range(ITEMS), num_replicas=n, rank=rank, seed=5)  # type: ignore[arg-type]


def _order(rank: int, n: int, epoch: int = EPOCH) -> list[int]:
    sampler = _sampler(rank, n)
    sampler.set_epoch(epoch)
    return list(sampler)


def trial(answer: Callable[..., Any], here: Here) -> Any:
    """Ask for the rest of the fourth epoch."""
    found = answer(_sampler(here.rank, here.world_size), EPOCH, DONE, BATCH)
    return found if found is None else [int(index) for index in found]


def expected(n: int) -> list[list[int]]:
    """Play every rank's epoch in one process, and leave out what was seen."""
    return [_order(r, n)[DONE * BATCH :] for r in range(n)]


EXERCISE = Exercise(
    id="11-2",
    title="Resume inside an epoch",
    answer="rest_of_epoch",
    setup="from torch.utils.data import DistributedSampler",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "That is the order of epoch 0: call sampler.set_epoch(epoch) first.",
            when=rank_simulated(lambda r, n: _order(r, n, 0)[DONE * BATCH :]),
        ),
        Mistake(
            "done counts batches, not images: skip done * batch images.",
            when=rank_simulated(lambda r, n: _order(r, n)[DONE:]),
        ),
        Mistake(
            "You skip the images of all ranks. The sampler gives only this rank's, of which done "
            "* batch were seen.",
            when=rank_simulated(lambda r, n: _order(r, n)[DONE * BATCH * n :]),
        ),
        Mistake(
            "That is the whole epoch, but its first done * batch images were seen: leave them out.",
            when=rank_simulated(_order),
        ),
        Mistake(
            "Those are the images that were seen. Return the rest.",
            when=rank_simulated(lambda r, n: _order(r, n)[: DONE * BATCH]),
        ),
        Mistake(
            "A DistributedSampler cannot be indexed: make a list of it first, list(sampler).",
            raises=r"'DistributedSampler' object is not subscriptable",
        ),
    ),
    hints=(
        "The sampler makes the same order again if it knows the epoch.",
        "After sampler.set_epoch(epoch), list(sampler) is this rank's whole epoch.",
        "The first done * batch entries of that list were seen: a slice leaves them out.",
    ),
)
