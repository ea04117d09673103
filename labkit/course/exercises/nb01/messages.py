"""What the trials of messages share: what ranks bring, in several dtypes and shapes, ranks that
come late, and what is looked at afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import Here, Mistake
from ...mistakes import Predicate, every_rank, simulated, some_rank

#: What a rank brings in each case of a trial.
CASES = ("x: two float32 numbers", "x: int32 of shape [2, 1]")
#: What a trial says of every x, after all cases.
KEPT, CHANGED = "x kept", "x changed"
#: Labels of what a trial of these cases returns.
ENTRIES = (*CASES, "x afterwards")
#: How much later than its neighbours a slow rank comes, in seconds.
LATE_SECONDS = 0.15
#: What a trial writes into x and the result as soon as an answer has returned.
OVERWRITTEN = -7
#: What one rank returns in one case, given what all ranks bring there: ``give(xs, rank)``.
Give = Callable[[Sequence[torch.Tensor], int], torch.Tensor | None]


def brought(rank: int) -> list[torch.Tensor]:
    """Return what a rank brings in each case: numbers that tell who sent them, of both
    signs and in no order."""
    return [
        torch.tensor([rank + 1.0, 10.0 * (rank + 1)]),
        torch.tensor([[7 * rank % 5 - 2], [rank * rank]], dtype=torch.int32),
    ]


def try_cases(
    answer: Callable[[torch.Tensor], Any], here: Here, cases: Sequence[torch.Tensor]
) -> list[Any] | None:
    """Call the answer with each case; return what it gave, and whether every x is unchanged; None
    if it gave None in all cases.

    x and the result are overwritten as soon as the answer has returned: an answer that leaves a
    message behind sends what it should not. In the first case odd ranks come late to each message,
    so that it shows every time.
    """
    gave: list[Any] = []
    kept = True
    for number, x in enumerate(cases):
        here.be_late(0.0 if number else LATE_SECONDS * (here.rank % 2))
        before = x.clone()
        result = answer(x)
        gave.append(told(result, x))
        kept = kept and torch.equal(x, before)
        for tensor in (x, result):
            if isinstance(tensor, torch.Tensor):
                tensor.fill_(OVERWRITTEN)
    return None if all(item is None for item in gave) else [*gave, KEPT if kept else CHANGED]


def told(result: Any, x: torch.Tensor) -> Any:
    """Return a tensor of x's dtype as a list; of another dtype as it is; else say what it is."""
    if result is None:
        return None
    if not isinstance(result, torch.Tensor):
        return f"no tensor but {type(result).__name__}"
    return result.tolist() if result.dtype == x.dtype else result.detach().clone().cpu()


def simulation(
    give: Give, bring: Callable[[int], list[torch.Tensor]] = brought
) -> Callable[[int], list[Any]]:
    """Play a trial in one process: what every rank returns if rank r gives ``give(xs, r)`` in each
    case, where xs is what all ranks bring."""

    def simulate(world_size: int) -> list[Any]:
        everyone = [bring(rank) for rank in range(world_size)]
        found: list[Any] = []
        for rank in range(world_size):
            values = [give(xs, rank) for xs in zip(*everyone, strict=True)]
            lists = [None if value is None else value.tolist() for value in values]
            found.append(None if all(item is None for item in lists) else [*lists, KEPT])
        return found

    return simulate


def gives(give: Give, bring: Callable[[int], list[torch.Tensor]] = brought) -> Predicate:
    """Return the predicate of a mistake by which rank r returns ``give(xs, r)``."""
    return simulated(simulation(give, bring))


def items(yours: Sequence[Any]) -> list[Any]:
    """Return what all ranks gave in all cases, without None and without what is said of x."""
    values = [value[:-1] for value in yours if value is not None]
    return [item for value in values for item in value if item is not None]


@some_rank
def has_other_dtype(mine: Any, its: Any) -> bool:
    """Return whether a rank returned a tensor of the expected shape, but of another dtype than
    x."""
    return None not in (mine, its) and any(
        isinstance(m, torch.Tensor) and i is not None and m.shape == torch.tensor(i).shape
        for m, i in zip(mine[:-1], its[:-1], strict=True)
    )


def has_no_tensor(yours: Any, expected: Any, world_size: int) -> bool:
    """Return whether a rank returned something that is neither a tensor nor None."""
    return any(isinstance(item, str) for item in items(yours))


#: An x has changed on some rank.
changes_x = some_rank(lambda mine, its: mine is not None and mine[-1] == CHANGED)
#: An x has changed, and all results are right.
changes_only_x = changes_x & every_rank(
    lambda mine, its: mine is its is None or mine[:-1] == its[:-1]
)


def comes_too_early(yours: Any, expected: Any, world_size: int) -> bool:
    """Return whether a rank returned numbers that no rank has brought, and that are not what the
    trial wrote afterwards."""
    everything = [x.tolist() for rank in range(world_size) for x in brought(rank)]
    lengths = {len(item) for item in everything}
    strange = [
        item
        for item in items(yours)
        if item not in everything and isinstance(item, list) and len(item) in lengths
    ]
    return any(numbers(item) != {OVERWRITTEN} for item in strange)


def numbers(item: Any) -> set[float]:
    """Return the numbers of a list of numbers, or of lists of them."""
    return set().union(*map(numbers, item)) if isinstance(item, list) else {item}


OTHER_DTYPE = Mistake(
    "The dtype of the buffer or of the result differs from that of x. torch.empty_like(x) has the "
    "shape, the dtype and the device of x; torch.zeros(x.shape) is float32.",
    when=has_other_dtype,
    raises=r"result type \w+ can't be cast|Died: signal 6",
)
NO_TENSOR = Mistake(
    "Return one tensor, not a Work, a list or a number.",
    when=has_no_tensor,
    raises=r"cannot pickle '.*Work' object",
)
CHANGES_X = Mistake("The results are right, but x was changed.", when=changes_only_x)
#: Of a message that was started and not waited for.
NOT_WAITED_FOR = (
    Mistake(
        "The result was read before the message had arrived: the function returned without "
        "waiting for its irecv.",
        when=comes_too_early,
    ),
    Mistake(
        "x was overwritten (with -7) before it had been sent: the function returned without "
        "waiting for its isend.",
        when=lambda yours, expected, n: any(
            numbers(item) == {OVERWRITTEN} for item in items(yours)
        ),
    ),
)
