"""Exercise 09-1: split the data in the same way on all ranks, and shard it anew in each epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from .facts import Facts, fact

#: Items for each rank; a quarter is for testing.
DEALT, TESTED = 18, 6
EPOCHS = 3
#: The smallest item, so that an item is not its own position.
FIRST = 1000


def trial(answer: Callable[..., Any], here: Here) -> Facts | None:
    """Deal 24 numbers per rank for three epochs; return what holds for all shares together."""
    torch.manual_seed(here.rank)  # as in a recipe: random numbers differ between ranks
    items = range(FIRST, FIRST + (DEALT + TESTED) * here.world_size)
    given = answer(list(items), EPOCHS)
    if given is None:
        return None
    dealt, tested = given
    shares = [[int(i) for i in epoch] for epoch in dealt]
    mine = ((shares + [[]] * EPOCHS)[:EPOCHS], [int(i) for i in tested])
    everyone: list[Any] = [None] * here.world_size
    dist.all_gather_object(everyone, mine)
    epochs = [sorted(i for share, _ in everyone for i in share[e]) for e in range(EPOCHS)]
    orders = {tuple(epoch) for epoch in mine[0] if epoch}
    tests = sorted(i for _, test in everyone for i in test)
    return {
        "epochs": len(shares),
        "all are items of data": set().union(tests, *epochs) <= set(items),
        "trained on": [len(epoch) for epoch in epochs],
        "different items trained on": [len(set(epoch)) for epoch in epochs],
        "one order twice": len(orders) < sum(map(bool, mine[0])),
        "tested": len(tests),
        "different items tested": len(set(tests)),
        "trained on and tested": len(set(tests) & set().union(*epochs)),
    }


def expected(world_size: int) -> list[Facts]:
    """Count what one process has that trains on three quarters and tests the rest."""
    facts = {
        "epochs": EPOCHS,
        "all are items of data": True,
        "trained on": [DEALT * world_size] * EPOCHS,
        "different items trained on": [DEALT * world_size] * EPOCHS,
        "one order twice": False,
        "tested": TESTED * world_size,
        "different items tested": TESTED * world_size,
        "trained on and tested": 0,
    }
    return [facts] * world_size


def _is_even(facts: Facts, n: int) -> bool:
    """Return whether as many items are trained on and tested as there should be, with repeats."""
    return facts["trained on"] == [DEALT * n] * EPOCHS and facts["tested"] == TESTED * n


def _repeats(yours: Sequence[Facts], n: int) -> bool:
    """Return whether items are trained on twice in an epoch, where the numbers are even."""
    return _is_even(yours[0], n) and yours[0]["different items trained on"][0] < DEALT * n


def _other_shares(yours: Sequence[Facts], expected: Any, n: int) -> bool:
    """Return whether all is in order but for how many items are tested."""
    tested, trained = yours[0]["different items tested"], yours[0]["different items trained on"]
    rest = (DEALT + TESTED) * n - tested
    return tested != TESTED * n and trained == [rest] * EPOCHS


EXERCISE = Exercise(
    id="09-1",
    title="Split the data, and shard it with DistributedSampler",
    answer="deal",
    setup="""
        from torch.utils.data import DataLoader, DistributedSampler, Subset, random_split


        def items(loader):
            return [int(item) for batch in loader for item in batch]
    """,
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "A DataLoader takes a sampler or shuffle=True, not both: the sampler shuffles.",
            raises=r"sampler option is mutually exclusive with shuffle",
        ),
        Mistake(
            "Those are positions, not items: a sampler yields positions in its set. Read the items "
            "through a loader, or look each position up in the set.",
            when=fact("all are items of data", lambda inside, n: not inside),
        ),
        Mistake(
            "Some items are both trained on and tested: each rank splits with its own random "
            "numbers, so the splits differ. Pass random_split a generator with the same seed on "
            "every rank.",
            when=lambda yours, expected, n: (
                _repeats(yours, n) and yours[0]["trained on and tested"] > 0
            ),
        ),
        Mistake(
            "The ranks' shares overlap: in an epoch some items go to several ranks, others to "
            "none. All ranks draw one order, so the sampler's seed and epoch are the same on each, "
            "and each takes its own part of it.",
            when=lambda yours, expected, n: (
                _repeats(yours, n) and yours[0]["trained on and tested"] == 0
            ),
        ),
        Mistake(
            "Items that were trained on are tested too, although all ranks split alike. Split "
            "once, before the epochs, and test the other part.",
            when=lambda yours, expected, n: (
                _is_even(yours[0], n)
                and yours[0]["trained on and tested"] > 0
                and yours[0]["different items trained on"] == [DEALT * n] * EPOCHS
            ),
        ),
        Mistake(
            "Every rank trains on the whole training set: its loader needs a DistributedSampler.",
            when=fact("trained on", lambda counts, n: counts == [DEALT * n * n] * EPOCHS),
        ),
        Mistake(
            "Every rank tests the whole test set: its loader needs a DistributedSampler too.",
            when=fact("tested", lambda count, n: count == TESTED * n * n),
        ),
        Mistake(
            "The split is not 75 : 25. Three quarters of the items are for training "
            "and one quarter is for testing: random_split(data, [0.75, 0.25], generator=…).",
            when=_other_shares,
        ),
        Mistake(
            "Two epochs have the same order: the training sampler has to shuffle, and "
            "set_epoch(epoch), called before each epoch, has to get its number.",
            when=fact("one order twice", lambda same, n: same),
        ),
    ),
    hints=(
        "Three things: one split for all ranks, a sampler for each of the two sets, and a new "
        "order in each epoch.",
        "generator=torch.Generator().manual_seed(0) goes into random_split; "
        "DistributedSampler(train_set) and DistributedSampler(test_set, shuffle=False) go into "
        "the loaders.",
        "In the loop over epochs: sampler.set_epoch(epoch), then dealt.append(items(loader)).",
    ),
)
