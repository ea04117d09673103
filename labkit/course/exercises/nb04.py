"""The exercises of notebook 04: a ring all-reduce from sends and receives.

Rank r brings the number 10**r, so that the digits of a sum say which ranks are in it, and how
often. What usually goes wrong is played through in one process and compared with what came back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..exercise import Exercise, Failed, Goal, Here, Mistake
from ..mistakes import When, failed, stuck, would_give

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)
#: Bytes of an element in the trials.
ITEM = 8
#: Side of the matrix that 04-4 adds up: nine numbers, which neither 2, 4 nor 8 divides.
SIDE = 3
#: What an answer put into the list of chunks instead of into the tensor.
IN_PLACE = (
    "Your tensor is as it was before. chunks[i] = chunks[i] + … puts a new tensor into the list; "
    "change the chunk itself, with += or copy_, or receive into it."
)
SENDS_FIRST = (
    "Every rank sends before it receives, and send returns only when its message is taken. Use "
    "exchange, or isend and then recv."
)
CHANGED = "x has changed"

#: chunk(rank, step, n): which chunk a rank sends or changes in a step.
Chunk = Callable[[int, int, int], int]


def _mine(rank: int, length: int) -> torch.Tensor:
    """Return ``length`` times 10**rank."""
    return torch.full((length,), 10**rank)


def _chunks(x: torch.Tensor, n: int) -> list[torch.Tensor]:
    return list(x.tensor_split(n))


# -- comparing --------------------------------------------------------------------------------


def _any(yours: Sequence[Any], kind: Callable[[Any], bool]) -> bool:
    return any(kind(y) for y in yours)


def _nothing(yours: Sequence[Any], expected: Any, n: int) -> bool:
    return _any(yours, lambda y: y is None)


def _play(
    start: Callable[[int, int], torch.Tensor], out: Chunk, into: Chunk, *, add: bool
) -> Callable[[int], list[torch.Tensor]]:
    """Play n - 1 steps of a ring in one process.

    Parameters
    ----------
    start
        ``start(rank, n)``: what a rank begins with, one number a chunk.
    out, into
        Which chunk a rank sends, and which one what it receives goes to.
    add
        Whether that is added, or replaces the chunk.
    """

    def play(n: int) -> list[torch.Tensor]:
        held = [start(rank, n) for rank in range(n)]
        for step in range(n - 1):
            sent = [held[rank][out(rank, step, n) % n].clone() for rank in range(n)]
            for rank in range(n):
                place = into(rank, step, n) % n
                held[rank][place] = sent[rank - 1] + (held[rank][place] if add else 0)
        return held

    return play


# -- 04-1: the naive ring ---------------------------------------------------------------------


def naive_trial(answer: Callable[..., Any], here: Here) -> Any:
    x = _mine(here.rank, 2).to(here.device)
    total = answer(x)
    return total if bool((x == 10**here.rank).all()) else CHANGED


def naive_expected(n: int) -> list[torch.Tensor]:
    return [torch.full((2,), sum(10**r for r in range(n)))] * n


def _naive(number: Callable[[int, int], int]) -> When:
    """Return the predicate of what a mistake gives: ``number(rank, n)`` on each rank."""
    return would_give(lambda n: [torch.full((2,), number(r, n)) for r in range(n)])


def _passes_on_totals(rank: int, n: int) -> int:
    totals = [10**r for r in range(n)]
    for _ in range(n - 1):
        totals = [totals[r] + totals[r - 1] for r in range(n)]
    return totals[rank]


NAIVE = Exercise(
    id="04-1",
    title="The naive ring",
    answer="naive_ring",
    trial=naive_trial,
    expected=naive_expected,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", exactly=lambda n: n - 1),
        Goal("bytes sent", most=lambda n: (n - 1) * 2 * ITEM),
    ),
    mistakes=(
        Mistake(SENDS_FIRST, when=stuck),
        Mistake("It returns nothing: end it with return total.", when=_nothing),
        Mistake(
            "It changes x, which belongs to the caller: begin with a copy, total = x.clone().",
            when=lambda yours, expected, n: _any(yours, lambda y: isinstance(y, str)),
        ),
        Mistake(
            "Only one neighbour's number is in the sum. A step passes a tensor one place on, and "
            "the farthest has n - 1 places to go: repeat the step.",
            when=_naive(lambda r, n: 10**r + 10 ** ((r - 1) % n)),
        ),
        Mistake(
            "You send your own x in every step, so your neighbour adds it n - 1 times. Send on "
            "what has just come in.",
            when=_naive(lambda r, n: 10**r + (n - 1) * 10 ** ((r - 1) % n)),
        ),
        Mistake(
            "You pass on the sum so far, so ranks are counted several times (look at the digits). "
            "Send on what has just come in, and keep the sum to yourself.",
            when=_naive(_passes_on_totals),
        ),
        Mistake(
            "One step too many: after n - 1 steps you have everybody's number, and the n-th "
            "brings back your own.",
            when=_naive(lambda r, n: sum(10**i for i in range(n)) + 10**r),
        ),
        Mistake(
            "Your own number is missing: the sum begins with x, not with zero.",
            when=_naive(lambda r, n: sum(10**i for i in range(n)) - 10**r),
        ),
    ),
    hints=(
        "Keep two things apart: the sum so far, which stays here, and the tensor that travels.",
        "In each step send the travelling tensor, receive another one into a fresh tensor, add "
        "that one to the sum, and let it be the one that travels next.",
        "total, outgoing = x.clone(), x; then n - 1 times: incoming = torch.empty_like(x), "
        "exchange(outgoing, incoming), total += incoming, outgoing = incoming.",
    ),
)


# -- 04-2: reduce-scatter ---------------------------------------------------------------------


def _start(rank: int, n: int) -> torch.Tensor:
    return torch.full((n,), 10**rank)


def scatter_trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    n = here.world_size
    x = _mine(here.rank, n).to(here.device)
    chunks = _chunks(x, n)
    room = _mine(here.rank, 2).to(here.device)  # more room than a chunk needs
    for step in range(n - 1):
        answer(chunks, step, room)
    return x


def scatter_expected(n: int) -> list[torch.Tensor]:
    """Return each rank's tensor: chunk i on rank r has the numbers of the ranks i, i + 1, …, r."""
    return [
        torch.tensor([sum(10 ** ((i + k) % n) for k in range((r - i) % n + 1)) for i in range(n)])
        for r in range(n)
    ]


SCATTER = Exercise(
    id="04-2",
    title="One step of reduce-scatter",
    answer="reduce_scatter_step",
    trial=scatter_trial,
    expected=scatter_expected,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", exactly=lambda n: n - 1),
        Goal("bytes sent", most=lambda n: (n - 1) * ITEM),
    ),
    mistakes=(
        Mistake(SENDS_FIRST, when=stuck),
        Mistake(
            "You receive into the whole room, but a chunk is shorter: use room[: len(mine)].",
            when=lambda yours, expected, n: failed(yours, "RuntimeError"),
        ),
        Mistake(IN_PLACE, when=would_give(lambda n: [_start(r, n) for r in range(n)])),
        Mistake(
            "What comes in replaces your chunk. In this half it is added to it: receive into "
            "room, then +=.",
            when=would_give(
                _play(_start, lambda r, k, n: r - k, lambda r, k, n: r - k - 1, add=False)
            ),
        ),
        Mistake(
            "You send the same chunk in every step, so no sum gets farther than one rank. In "
            "step k it is chunk rank - k.",
            when=would_give(_play(_start, lambda r, k, n: r, lambda r, k, n: r - 1, add=True)),
        ),
        Mistake(
            "You add to the chunk that you send. What comes in is your left neighbour's chunk "
            "(rank - 1) - step: add it to your chunk of the same number.",
            when=would_give(_play(_start, lambda r, k, n: r - k, lambda r, k, n: r - k, add=True)),
        ),
        Mistake(
            "You count the chunks up, with rank + step. Send the one that you have just added to: "
            "rank, then rank - 1, rank - 2, …",
            when=would_give(
                _play(_start, lambda r, k, n: r + k, lambda r, k, n: r + k - 1, add=True)
            ),
        ),
    ),
    hints=(
        "The chunk that you add to in one step is the one that you send in the next.",
        "Receive into as much of room as chunk (rank - step - 1) % n is long, while you send "
        "chunk (rank - step) % n; then add, in place.",
        "mine = chunks[(rank - step - 1) % n]; incoming = room[: len(mine)]; "
        "exchange(chunks[(rank - step) % n], incoming); mine += incoming",
    ),
)


# -- 04-3: all-gather -------------------------------------------------------------------------


def _finished(rank: int, n: int) -> torch.Tensor:
    """Return what a rank holds after reduce-scatter, with -1 where a chunk is not finished."""
    x = torch.full((n,), -1)
    own = (rank + 1) % n
    x[own] = 10 * (own + 1)
    return x


def gather_trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    n = here.world_size
    x = _finished(here.rank, n).to(here.device)
    chunks = _chunks(x, n)
    for step in range(n - 1):
        answer(chunks, step)
    return x


def gather_expected(n: int) -> list[torch.Tensor]:
    return [torch.tensor([10 * (i + 1) for i in range(n)])] * n


GATHER = Exercise(
    id="04-3",
    title="One step of all-gather",
    answer="all_gather_step",
    trial=gather_trial,
    expected=gather_expected,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", exactly=lambda n: n - 1),
        Goal("bytes sent", most=lambda n: (n - 1) * ITEM),
    ),
    mistakes=(
        Mistake(SENDS_FIRST, when=stuck),
        Mistake(IN_PLACE, when=would_give(lambda n: [_finished(r, n) for r in range(n)])),
        Mistake(
            "You add what comes in. A finished chunk has everybody's part already: it replaces "
            "yours.",
            when=would_give(
                _play(_finished, lambda r, k, n: r + 1 - k, lambda r, k, n: r - k, add=True)
            ),
        ),
        Mistake(
            "In step 0 you send chunk rank, which is not finished (-1 in this test). The finished "
            "one on rank r is chunk r + 1.",
            when=would_give(
                _play(_finished, lambda r, k, n: r - k, lambda r, k, n: r - k - 1, add=False)
            ),
        ),
        Mistake(
            "You send your own finished chunk in every step. From step 1 on, send on the one that "
            "has just come in.",
            when=would_give(_play(_finished, lambda r, k, n: r + 1, lambda r, k, n: r, add=False)),
        ),
        Mistake(
            "You count the chunks up, with + step. What you receive in one step you send in the "
            "next: rank + 1, then rank, rank - 1, …",
            when=would_give(
                _play(_finished, lambda r, k, n: r + 1 + k, lambda r, k, n: r + k, add=False)
            ),
        ),
        Mistake(
            "Some chunks are still unfinished (-1): what you receive in step k belongs in chunk "
            "rank - k.",
            when=lambda yours, expected, n: _any(
                yours, lambda y: isinstance(y, torch.Tensor) and bool((y == -1).any())
            ),
        ),
    ),
    hints=(
        "It is the same walk as in reduce-scatter, one chunk farther on, and without the +.",
        "In step k send chunk rank + 1 - k, and receive chunk rank - k, modulo n. Nothing is "
        "added, so you can receive straight into the chunk.",
        "exchange(chunks[(rank + 1 - step) % n], chunks[(rank - step) % n])",
    ),
)


# -- 04-4: the whole ring ---------------------------------------------------------------------


def _factors() -> torch.Tensor:
    """Return a matrix of 1 to 9, so that a chunk in the wrong place is noticed."""
    return torch.arange(1, SIDE * SIDE + 1).view(SIDE, SIDE)


def ring_trial(answer: Callable[..., Any], here: Here) -> list[int]:
    """Add up a matrix whose sum is 11…1 times the factors; return the numbers before them."""
    factors = _factors().to(here.device)
    x = 10**here.rank * factors
    answer(x)
    return sorted((x // factors).unique().tolist())


def ring_expected(n: int) -> list[list[int]]:
    return [[sum(10**r for r in range(n))]] * n


def most_bytes(n: int) -> int:
    """Return what the largest sender needs: all chunks but one (the smallest), twice."""
    size = SIDE * SIDE
    return 2 * (size - size // n) * ITEM


def _half_done(yours: Any, expected: Any, n: int) -> bool:
    partial = [[sum(10 ** ((r - k) % n) for k in range(m + 1)) for m in range(n)] for r in range(n)]
    return list(yours) == [sorted(set(sums)) for sums in partial]


RING = Exercise(
    id="04-4",
    title="The whole ring",
    answer="ring_all_reduce",
    trial=ring_trial,
    expected=ring_expected,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", exactly=lambda n: 2 * (n - 1)),
        Goal("bytes sent", most=most_bytes),
    ),
    mistakes=(
        Mistake(
            "torch.chunk may make fewer chunks than you ask for; nine numbers for four ranks "
            "become three chunks of three. tensor_split makes exactly n.",
            when=lambda yours, expected, n: _any(
                yours, lambda y: isinstance(y, Failed) and y.name == "IndexError"
            ),
        ),
        Mistake(
            "x is as it was before: the sum has to be in x itself. view and tensor_split share "
            "x's memory; clone, and a new tensor that you return, do not.",
            when=lambda yours, expected, n: list(yours) == [[10**r] for r in range(n)],
        ),
        Mistake(
            "One chunk on each rank is finished and the others are partial sums: this is "
            "reduce-scatter. The all-gather is missing.",
            when=_half_done,
        ),
        Mistake(
            "The sum is right, but you send too much: cut x.view(-1) into chunks, not the rows of "
            "x, of which three cannot be shared among four ranks.",
            missed="bytes sent",
        ),
        Mistake(
            "There are partial sums left: both halves take n - 1 steps, all of the first before "
            "the second begins.",
            when=lambda yours, expected, n: _any(
                yours, lambda y: isinstance(y, list) and len(y) > 1
            ),
        ),
    ),
    hints=(
        "You have both halves. What is left is to cut x, and to take all their steps in order.",
        "Make x one row with x.view(-1), cut it with tensor_split(n) into a list, then two loops "
        "over range(n - 1), one after the other.",
        "chunks = list(x.view(-1).tensor_split(n)); room = torch.empty_like(chunks[0]); then for "
        "step in range(n - 1): reduce_scatter_step(chunks, step, room); then all_gather_step.",
    ),
)


# -- 04-5: what goes through the busiest link ---------------------------------------------------

METHODS = ("parameter_server", "naive_ring", "ring_all_reduce")
RANKS = (2, 4, 10)
SIZE = 1000


def link_trial(answer: Callable[..., Any], here: Here) -> list[float]:
    """Return three numbers of ranks for each of three methods, in one list."""
    return [float(answer(method, n, SIZE)) for method in METHODS for n in RANKS]


def _links(server: Callable[[int], float], naive: Any, ring: Any) -> list[float]:
    return [float(SIZE * f(n)) for f in (server, naive, ring) for n in RANKS]


def _server(n: int) -> float:
    return 2 * (n - 1)


def _naive_ring(n: int) -> float:
    return n - 1


def _ring(n: int) -> float:
    return 2 * (n - 1) / n


def link_expected() -> list[float]:
    return _links(_server, _naive_ring, _ring)


def _at(method: int, factor: Callable[[int], float]) -> When:
    """Return the predicate of a wrong factor for one of the methods."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        if not isinstance(yours, list):
            return False
        part = yours[method * len(RANKS) : (method + 1) * len(RANKS)]
        wrong = [SIZE * factor(k) for k in RANKS]
        return len(part) == len(wrong) and all(
            abs(y - w) < 1e-6 * SIZE for y, w in zip(part, wrong, strict=True)
        )

    return when


LINK = Exercise(
    id="04-5",
    title="Three formulas",
    answer="link_bytes",
    trial=link_trial,
    expected=link_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "It returns nothing for one of the methods.",
            when=lambda yours, expected, n: isinstance(yours, Failed) and yours.name == "TypeError",
        ),
        Mistake(
            "You count one direction of the server only. It receives n - 1 tensors first, and "
            "then sends n - 1.",
            when=_at(0, lambda n: n - 1),
        ),
        Mistake(
            "The server sends nothing to itself: it talks to n - 1 workers, not to n.",
            when=_at(0, lambda n: 2 * n),
        ),
        Mistake(
            "The naive ring takes n - 1 steps: after those everybody has everything.",
            when=_at(1, lambda n: n),
        ),
        Mistake(
            "The naive ring sends while it receives: count the larger of the two, not both.",
            when=_at(1, lambda n: 2 * (n - 1)),
        ),
        Mistake(
            "You count half of the chunked ring: reduce-scatter and all-gather each send n - 1 "
            "chunks.",
            when=_at(2, lambda n: (n - 1) / n),
        ),
        Mistake(
            "The chunked ring sends 2(n - 1) messages, but each is a chunk: a tensor's n-th part.",
            when=_at(2, lambda n: 2 * (n - 1)),
        ),
    ),
    hints=(
        "For each method ask: how many messages go through that rank's link one after the other, "
        "and how large is each?",
        "Server: n - 1 whole tensors in, then n - 1 out. Naive ring: n - 1 steps with a whole "
        "tensor. Chunked ring: 2(n - 1) steps with an n-th of it.",
        "2 * (n - 1) * size, (n - 1) * size, 2 * (n - 1) / n * size",
    ),
)


EXERCISES = (NAIVE, SCATTER, GATHER, RING, LINK)
