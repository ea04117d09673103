"""The exercises of notebook 11: cut layers evenly, fill a pipeline, order it, cut a matrix.

The first three need no ranks: what usually goes wrong is played through and compared with what
came back. In the last one all numbers are small integers, so that sums are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import Any

import torch

from ..exercise import Exercise, Goal, Here, Mistake
from ..mistakes import When, failed, would_give

# -- 11-1: cut evenly -------------------------------------------------------------------------

#: What the layers cost, and the number of stages.
CUTS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((4, 1, 1, 1, 1), 2),
    ((1, 1, 1, 1, 4, 4), 3),
    ((2, 2, 5, 1), 2),
    ((5, 1, 1, 1, 1, 5), 2),
    ((1, 5, 1, 5, 1, 1, 1), 3),
    ((2, 2, 2, 2, 2, 2, 2), 4),
)
PLACES, STAGES, EMPTY, LAYERS = "places", "stages", "an empty stage", "layers"


def _heaviest(costs: Sequence[int], counts: Sequence[int]) -> int:
    """Return what the most expensive stage costs."""
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return max(sum(costs[i:j]) for i, j in pairwise((0, *ends)))


def _weigh(costs: Sequence[int], p: int, counts: Any) -> Any:
    """Return the cost of the most expensive stage, or what is wrong with the cut."""
    counts = [int(count) for count in counts]
    if len(counts) != p:
        return PLACES if counts[:1] == [0] else STAGES
    if min(counts) < 1:
        return EMPTY
    return _heaviest(costs, counts) if sum(counts) == len(costs) else LAYERS


def trial_cut(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Return the cost of the most expensive stage in each case."""
    return [_weigh(costs, p, answer(list(costs), p)) for costs, p in CUTS]


def expected_cut() -> list[int]:
    """Try all ways to cut."""
    best = []
    for costs, p in CUTS:
        ways = [(0, *i, len(costs)) for i in combinations(range(1, len(costs)), p - 1)]
        best.append(min(_heaviest(costs, [j - i for i, j in pairwise(way)]) for way in ways))
    return best


def _by_number(costs: Sequence[int], p: int) -> list[int]:
    """Deal the layers out in equal numbers."""
    return [len(costs) // p + (s < len(costs) % p) for s in range(p)]


def _filled(costs: Sequence[int], p: int) -> list[int]:
    """Fill each stage until it has its share, and give the last one what is left."""
    counts, cost = [0], 0
    for layer in costs:
        if cost >= sum(costs) / p and len(counts) < p:
            counts, cost = [*counts, 0], 0
        counts[-1] += 1
        cost += layer
    return counts


def _cuts(way: Callable[[Sequence[int], int], list[int]]) -> When:
    return would_give(lambda n: [_heaviest(costs, way(costs, p)) for costs, p in CUTS])


def _tells(problem: str) -> When:
    return lambda yours, expected, n: isinstance(yours, list) and problem in yours


CUT = Exercise(
    id="11-1",
    title="Cut evenly",
    answer="cut",
    trial=trial_cut,
    expected=expected_cut,
    where="notebook",
    mistakes=(
        Mistake(
            "You return the places where you cut. Return how many layers each stage gets: the "
            "differences between one place and the next.",
            when=_tells(PLACES),
        ),
        Mistake(
            "The list does not have p numbers: one for each stage.",
            when=_tells(STAGES),
        ),
        Mistake(
            "A stage gets no layer, and a rank would have nothing to do: at least one each.",
            when=_tells(EMPTY),
        ),
        Mistake(
            "The numbers do not add up to the number of layers: none may be left out or doubled.",
            when=_tells(LAYERS),
        ),
        Mistake(
            "You deal out equal numbers of layers. They cost different amounts: make the most "
            "expensive stage as cheap as can be.",
            when=_cuts(_by_number),
        ),
        Mistake(
            "You fill a stage until it has its share of the cost. That can overfill it by a whole "
            "layer: compare all ways to cut.",
            when=_cuts(_filled),
        ),
    ),
    hints=(
        "There are few ways to cut: p - 1 places out of len(costs) - 1. Try them all.",
        "combinations(range(1, len(costs)), p - 1) gives the places. With 0 before and len(costs) "
        "after them, a stage has the layers from one place to the next.",
        "ways = [(0, *inner, len(costs)) for inner in combinations(...)]; take the min by "
        "max(sum(costs[i:j]) for i, j in pairwise(way)); return the differences j - i.",
    ),
)

# -- 11-2: enough micro-batches ---------------------------------------------------------------

#: Stages, and the largest bubble. Powers of two are met exactly, the others never are.
BUBBLES = ((4, 0.5), (4, 0.25), (8, 0.125), (2, 0.5), (4, 0.11), (8, 0.3), (1, 0.5))


def trial_micro(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Ask for the number of micro-batches in each case."""
    return [answer(p, share) for p, share in BUBBLES]


def _first(enough: Callable[[int, int, float], bool]) -> list[int]:
    """Return the first m that is enough, in each case."""
    return [next(m for m in range(1, 10_000) if enough(m, p, share)) for p, share in BUBBLES]


def expected_micro() -> list[int]:
    """Count up until the bubble is small enough."""
    return _first(lambda m, p, share: (p - 1) / (m + p - 1) <= share)


def _finds(enough: Callable[[int, int, float], bool]) -> When:
    return would_give(lambda n: _first(enough))


def _rounds_down(p: int, share: float) -> int:
    return max(1, math.floor((p - 1) / share - (p - 1)))


MICRO = Exercise(
    id="11-2",
    title="Enough micro-batches",
    answer="micro_batches",
    trial=trial_micro,
    expected=expected_micro,
    where="notebook",
    mistakes=(
        Mistake(
            "You divide the idle slots by the m slots of work. The bubble is their share of all "
            "m + p - 1 slots.",
            when=_finds(lambda m, p, share: (p - 1) / m <= share),
        ),
        Mistake(
            "You count p idle slots. The last stage begins p - 1 slots late: the first one does "
            "not wait for itself.",
            when=_finds(lambda m, p, share: p / (m + p) <= share),
        ),
        Mistake(
            "A bubble that is exactly share is small enough: at most, not less than.",
            when=_finds(lambda m, p, share: (p - 1) / (m + p - 1) < share),
        ),
        Mistake(
            "Rounded down, the bubble is a little larger than allowed: round up.",
            when=would_give(lambda n: [_rounds_down(*case) for case in BUBBLES]),
        ),
    ),
    hints=(
        "Begin with m = 1, and try one more as long as the bubble is too large.",
        "The bubble of m micro-batches in p stages is (p - 1) / (m + p - 1).",
        "m = 1; while (p - 1) / (m + p - 1) > share: m += 1; return m.",
    ),
)

# -- 11-3: 1F1B -------------------------------------------------------------------------------

#: Stages and micro-batches; every stage of each is asked for.
PIPES = ((4, 6), (4, 2), (2, 3), (1, 2))


def trial_order(answer: Callable[..., Any], here: Here) -> list[list[str]]:
    """Ask every stage of each pipeline for its order."""
    return [list(answer(stage, p, m)) for p, m in PIPES for stage in range(p)]


def _order(ahead: int, m: int) -> list[str]:
    """Return the order of a stage that runs ``ahead`` forwards before it takes turns."""
    ahead = min(m, ahead)
    order = [f"F{k}" for k in range(ahead)]
    for k in range(ahead, m):
        order += [f"F{k}", f"B{k - ahead}"]
    return order + [f"B{k}" for k in range(m - ahead, m)]


def _orders(ahead: Callable[[int, int, int], int]) -> list[list[str]]:
    return [_order(ahead(s, p, m), m) for p, m in PIPES for s in range(p)]


def expected_order() -> list[list[str]]:
    """Return 1F1B."""
    return _orders(lambda s, p, m: p - 1 - s)


def _starts(ahead: Callable[[int, int, int], int]) -> When:
    return would_give(lambda n: _orders(ahead))


def _too_many(yours: Any, expected: Any, n: int) -> bool:
    """Tell whether there is a micro-batch that does not exist."""
    numbers = [m for p, m in PIPES for _ in range(p)]
    return any(
        int(part[1:]) not in range(m) for m, order in zip(numbers, yours, strict=True)
        for part in order
    )  # fmt: skip


def _too_short(yours: Any, expected: Any, n: int) -> bool:
    return all(len(y) <= len(e) for y, e in zip(yours, expected, strict=True)) and any(
        set(y) < set(e) for y, e in zip(yours, expected, strict=True)
    )


ORDER = Exercise(
    id="11-3",
    title="1F1B",
    answer="one_f_one_b",
    trial=trial_order,
    expected=expected_order,
    where="notebook",
    mistakes=(
        Mistake(
            "With few micro-batches some do not exist: begin with min(m, p - 1 - stage) forwards, "
            "and never name one from m on.",
            when=_too_many,
        ),
        Mistake(
            "Parts are missing: every micro-batch goes forward once and back once. After the "
            "turns, the backwards that are left have to follow.",
            when=_too_short,
        ),
        Mistake(
            "This is gpipe: all forwards, then all backwards. It keeps all m micro-batches.",
            when=_starts(lambda s, p, m: m),
        ),
        Mistake(
            "You count from the wrong end. The first stage runs farthest ahead, for it has most "
            "stages behind it: p - 1 - stage.",
            when=_starts(lambda s, p, m: s),
        ),
        Mistake(
            "One forward too many at the beginning: the taking of turns begins with a forward as "
            "well, so it is p - 1 - stage.",
            when=_starts(lambda s, p, m: p - s),
        ),
        Mistake(
            "Every stage takes turns from the beginning, so all wait for the first micro-batch to "
            "come back: only the last stage may.",
            when=_starts(lambda s, p, m: 0),
        ),
    ),
    hints=(
        "Three parts: a few forwards, then pairs of one forward and one backward, then the "
        "backwards that are left.",
        "ahead = min(m, p - 1 - stage) forwards come first. In the pairs, forward k goes with "
        "backward k - ahead.",
        "order = [F0 … up to ahead]; for k in range(ahead, m): order += [f'F{k}', "
        "f'B{k - ahead}']; then the backwards from m - ahead to m - 1.",
    ),
)

# -- 11-4: a layer with a bias ----------------------------------------------------------------

#: Rows, outputs, and inputs on each rank.
ROWS, OUT, EACH = 2, 4, 3


def _layer(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x, w and bias of the whole layer: small integers, and a bias that stands out."""
    x = torch.arange(1.0, ROWS * EACH * n + 1).view(ROWS, EACH * n)
    w = (torch.arange(OUT * EACH * n) % 5 - 1.0).view(OUT, EACH * n)
    return x, w, 1000 * torch.arange(1.0, OUT + 1)


def _share(n: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, w, _ = _layer(n)
    return x.chunk(n, dim=1)[rank], w.chunk(n, dim=1)[rank]


def trial_row(answer: Callable[..., Any], here: Here) -> Any:
    """Give each rank its columns."""
    x, w = _share(here.world_size, here.rank)
    return answer(x.to(here.device), w.to(here.device), _layer(here.world_size)[2].to(here.device))


def expected_row(n: int) -> list[torch.Tensor]:
    """Compute the whole layer in one process."""
    x, w, bias = _layer(n)
    return [x @ w.T + bias] * n


def _gives(wrong: Callable[[int, int], torch.Tensor]) -> When:
    """Return the predicate of what a mistake gives: ``wrong(rank, n)`` on each rank."""
    return would_give(lambda n: [wrong(rank, n) for rank in range(n)])


def _part(rank: int, n: int) -> torch.Tensor:
    x, w = _share(n, rank)
    return x @ w.T


def _sum(n: int) -> torch.Tensor:
    x, w, _ = _layer(n)
    return x @ w.T


ROW = Exercise(
    id="11-4",
    title="A layer with a bias",
    answer="row_linear",
    trial=trial_row,
    expected=expected_row,
    forbids=("all_gather", "all_gather_into_tensor", "all_gather_object"),
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "Each rank has a part of the sum, from its own inputs, plus the bias. The parts of "
            "all ranks have to be added up.",
            when=_gives(lambda r, n: _part(r, n) + _layer(n)[2]),
        ),
        Mistake(
            "The bias is in the result once for every rank: each adds it before the parts are "
            "added up. Add it afterwards.",
            when=_gives(lambda r, n: _sum(n) + n * _layer(n)[2]),
        ),
        Mistake(
            "The bias is missing: add it to the sum.",
            when=_gives(lambda r, n: _sum(n)),
        ),
        Mistake(
            "You average. The ranks have different inputs of the same row, and these are added up.",
            when=_gives(lambda r, n: _sum(n) / n + _layer(n)[2]),
        ),
        Mistake(
            "w has a row for each output, as in nn.Linear: multiply by w.T.",
            when=lambda yours, expected, n: failed(yours, "RuntimeError"),
        ),
    ),
    hints=(
        "What does this rank know alone? For every output, a part of the sum over inputs.",
        "x @ w.T is this rank's part. all_reduce adds up the parts of all ranks, in place.",
        "out = x @ w.T; dist.all_reduce(out); return out + bias.",
    ),
)


EXERCISES = (CUT, MICRO, ORDER, ROW)
