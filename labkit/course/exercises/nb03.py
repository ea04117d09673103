"""The exercises of notebooks 03 and 03b: choose a collective and use it well."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..compare import same
from ..exercise import Exercise, Goal, Here, Mistake
from ..mistakes import failed

FLOAT = 4  #: bytes


def _uneven(rank: int) -> torch.Tensor:
    """Return rank + 1 numbers: 10, 20 21, 30 31 32, …"""
    return torch.arange(rank + 1.0) + 10 * (rank + 1)


# -- 03-1 ---------------------------------------------------------------------------------------


def trial_mean(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    """Average samples of which every rank has another number."""
    value = answer(_uneven(here.rank).to(here.device))
    return value if value is None else float(value)


def expected_mean(world_size: int) -> list[float]:
    """Average all samples in one process."""
    return [torch.cat([_uneven(r) for r in range(world_size)]).mean().item()] * world_size


def _close(yours: Sequence[Any], wanted: float) -> bool:
    return all(isinstance(y, float) and abs(y - wanted) < 1e-3 for y in yours)


def _mean_of_means(n: int) -> float:
    return sum(_uneven(r).mean().item() for r in range(n)) / n


# -- 03-2 ---------------------------------------------------------------------------------------


def _matrix(world_size: int) -> torch.Tensor:
    return torch.tensor([[10.0 * r + c for c in range(world_size)] for r in range(world_size)])


def trial_column(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> torch.Tensor:
    """Give this rank's row of a matrix, ask for its column."""
    return answer(_matrix(here.world_size)[here.rank].to(here.device))


def expected_column(world_size: int) -> list[torch.Tensor]:
    """Cut the matrix into columns in one process."""
    return list(_matrix(world_size).T)


# -- 03-3 ---------------------------------------------------------------------------------------


def trial_gather(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> torch.Tensor:
    """Gather tensors of unequal length."""
    return answer(_uneven(here.rank).to(here.device))


def expected_gather(world_size: int) -> list[torch.Tensor]:
    """Put all of them together in one process."""
    return [torch.cat([_uneven(r) for r in range(world_size)])] * world_size


def _padded(n: int) -> torch.Tensor:
    rows = torch.zeros(n, n)
    for r in range(n):
        rows[r, : r + 1] = _uneven(r)
    return rows


# -- 03-4 ---------------------------------------------------------------------------------------


def _source(world_size: int) -> int:
    return min(1, world_size - 1)


def trial_broadcast(answer: Callable[[torch.Tensor, int], Any], here: Here) -> torch.Tensor:
    """Broadcast from rank 1, in place."""
    x = torch.tensor([100.0 * here.rank, 100.0 * here.rank + 1], device=here.device)
    answer(x, _source(here.world_size))
    dist.barrier()
    return x


def expected_broadcast(world_size: int) -> list[torch.Tensor]:
    """Copy the source's tensor in one process."""
    first = 100.0 * _source(world_size)
    return [torch.tensor([first, first + 1])] * world_size


# -- 03-5 ---------------------------------------------------------------------------------------

TOP = 3  #: how many are asked for


def _scores(rank: int) -> torch.Tensor:
    """Return twelve numbers, no two of any rank alike; the best three are not of three ranks."""
    return torch.tensor([(29.0 * i + 17 * rank) % 97 + 8 * rank for i in range(12)])


def _best(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.topk(TOP).values


def trial_top(answer: Callable[[torch.Tensor, int], torch.Tensor], here: Here) -> torch.Tensor:
    """Give this rank's numbers, ask for the largest of all ranks."""
    return answer(_scores(here.rank).to(here.device), TOP)


def expected_top(world_size: int) -> list[torch.Tensor]:
    """Look through all numbers in one process."""
    return [_best(torch.cat([_scores(r) for r in range(world_size)]))] * world_size


# -- 03-6 ---------------------------------------------------------------------------------------

#: How often a trial asks.
QUESTIONS = 4


def _opinions(rank: int, world_size: int) -> list[list[int]]:
    """Return what a rank holds in each question: the same as all; on the last rank something else
    in one place; numbers whose mean most ranks hold; on the last rank another order."""
    last = rank == world_size - 1
    around = 2 if last else min(rank, 1)
    return [[3, 7], [3, 8 if last else 7], [around, 7], [7, 3] if last else [3, 7]]


def trial_agree(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any]:
    """Ask four times whether all ranks hold the same."""
    verdicts: list[Any] = []
    for numbers in _opinions(here.rank, here.world_size):
        value = answer(torch.tensor(numbers, device=here.device))
        verdicts.append(value if value is None else bool(value))
    return verdicts


def expected_agree(world_size: int) -> list[list[bool]]:
    """Compare in one process."""
    brought = [_opinions(r, world_size) for r in range(world_size)]
    verdicts = [all(b[q] == brought[0][q] for b in brought) for q in range(QUESTIONS)]
    return [verdicts] * world_size


# -- 03-7 ---------------------------------------------------------------------------------------


def _nodes(world_size: int) -> list[list[int]]:
    """Cut the world into two nodes, or one for a single rank."""
    half = (world_size + 1) // 2
    return [node for node in (list(range(half)), list(range(half, world_size))) if node]


def _score(rank: int) -> float:
    return float(7 * rank % 5)


def _held(rank: int) -> torch.Tensor:
    return torch.tensor([10.0 * rank, 10.0 * rank + 1])


def trial_follow(answer: Callable[[torch.Tensor, float, Any], Any], here: Here) -> torch.Tensor:
    """Let every node follow its best rank."""
    rank = here.rank
    groups = [dist.new_group(node) for node in _nodes(here.world_size)]
    (own,) = (g for g, node in zip(groups, _nodes(here.world_size), strict=True) if rank in node)
    x = _held(rank).to(here.device)
    answer(x, _score(rank), own)
    return x


def expected_follow(world_size: int) -> list[torch.Tensor]:
    """Choose in one process."""
    return [_held(max(node, key=_score)) for node in _nodes(world_size) for _ in node]


def _says(yours: Sequence[Any], text: str) -> bool:
    """Tell whether a rank failed with these words in its message."""
    return any(failed([y]) and text in y.message for y in yours)


# -- 03-8 ---------------------------------------------------------------------------------------

#: Seconds that ranks wait for one another in a trial, if an answer lets them wait in vain.
PATIENCE = 3.0
#: Seconds that the last rank is late, to see whether anybody goes on without it.
LATE = 1.0
MEANWHILE, TOO_EARLY, TOO_LATE = "during the sum", "before the sum", "after the sum"


class _Meeting:
    """Notes that the ranks of one trial leave each other, in the group's store."""

    def __init__(self, name: str, rank: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        # Every rank counts its trials, so that each has a place of its own.
        number = store.add(f"labkit 03-8 {name} {rank}", 1)
        self._store = dist.PrefixStore(f"labkit 03-8 {name} {number}", store)

    def note(self, what: str) -> None:
        self._store.add(what, 1)

    def wait(self, what: str, count: int, seconds: float = PATIENCE) -> bool:
        """Wait until so many have noted it; tell whether they have."""
        end = time.monotonic() + seconds
        while self._store.add(what, 0) < count:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def trial_meanwhile(answer: Callable[..., Any], here: Here) -> list[tuple[float, float, str] | Any]:
    """Add up twice. In the first sum every rank but the last computes until the last one is
    through; in the second the last one is late, and nobody can have the sum before it comes."""
    return [
        _overlapped(answer, here),
        _patient(answer, here),
    ]


def _overlapped(answer: Callable[..., Any], here: Here) -> Any:
    """Note when ``compute`` runs: it can see the last rank finish only if the sum has begun."""
    rank = here.rank
    meeting, others = _Meeting("order", rank), here.world_size - 1
    when = "never"
    if rank == others and not meeting.wait("computing", others):
        meeting.note("in vain")

    def compute() -> float:
        nonlocal when
        when = MEANWHILE
        if rank != others:
            meeting.note("computing")
            when = MEANWHILE if meeting.wait("through", 1) else TOO_EARLY
        return rank + 0.5

    result = answer(torch.tensor([rank + 1.0], device=here.device), compute)
    if rank == others:
        meeting.note("through")
    if result is None:
        return None
    average, computed = result
    if meeting.wait("in vain", 1, 0) and when != "never":
        when = TOO_LATE
    return float(average), computed, when


def _patient(answer: Callable[..., Any], here: Here) -> Any:
    """Return the average that the answer gives when the last rank is late."""
    rank = here.rank
    meeting, others = _Meeting("late", rank), here.world_size - 1
    if rank == others:
        meeting.wait("computing", others)
        meeting.wait("has a result", others, LATE if others else 0)

    def compute() -> float:
        meeting.note("computing")
        return 0.0

    result = answer(torch.tensor([rank + 1.0], device=here.device), compute)
    average = None if result is None else float(result[0])
    meeting.note("has a result")
    return average


def expected_meanwhile(world_size: int) -> list[list[Any]]:
    """Average in one process."""
    average = sum(r + 1.0 for r in range(world_size)) / world_size
    return [[(average, r + 0.5, MEANWHILE), average] for r in range(world_size)]


def _when(yours: Sequence[Any], moment: str) -> bool:
    """Tell whether some rank called ``compute`` at that moment."""
    return any(isinstance(y, list | tuple) and y[0] and y[0][2] == moment for y in yours)


EXERCISES = (
    Exercise(
        id="03-1",
        title="Average uneven shares with one collective",
        answer="mean_of_all",
        trial=trial_mean,
        expected=expected_mean,
        goals=(Goal("collectives", exactly=lambda n: 1),),
        mistakes=(
            Mistake(
                "That is the mean of the ranks' means: a rank with one sample counts as much as a "
                "rank with four. Add up the samples, and how many there are.",
                when=lambda yours, expected, n: _close(yours, _mean_of_means(n)),
            ),
            Mistake(
                "The sum is divided by the number of ranks; divide it by the number of samples on "
                "all ranks.",
                when=lambda yours, expected, n: _close(
                    yours, sum(_uneven(r).sum().item() for r in range(n)) / n),
            ),
            Mistake(
                "Each rank averages its own samples only: nothing has crossed between ranks.",
                when=lambda yours, expected, n: all(
                    isinstance(y, float) and abs(y - _uneven(r).mean().item()) < 1e-3
                    for r, y in enumerate(yours)),
            ),
            Mistake(
                "The ranks bring tensors of different lengths to the collective. Bring something "
                "of the same shape on every rank: a sum and a count.",
                when=lambda yours, expected, n: failed(
                    yours, "Deadlock", "TimedOut", "Died", "RuntimeError"),
            ),
            Mistake(
                "The result is right, but it takes two collectives: put the sum and the count "
                "into one tensor.",
                missed="collectives",
            ),
        ),
        hints=(
            "The mean of all samples is their sum, divided by how many there are. Both are sums "
            "over the ranks.",
            "One tensor can carry both: torch.stack([samples.sum(), …]), or a list of two numbers.",
            "t = torch.tensor([samples.sum(), len(samples)], device=device); all_reduce t; return "
            "its first number divided by its second.",
        ),
    ),
    Exercise(
        id="03-2",
        title="Turn rows into columns",
        answer="my_column",
        trial=trial_column,
        expected=expected_column,
        forbids=("all_gather", "all_gather_object"),
        goals=(
            Goal("collectives", exactly=lambda n: 1),
            Goal("bytes sent", most=lambda n: FLOAT * n),
        ),
        mistakes=(
            Mistake(
                "That is the row that the rank began with: the result of the call is in its first "
                "argument.",
                when=lambda yours, expected, n: same(yours, list(_matrix(n))),
            ),
            Mistake(
                "The numbers are right, the shape is not: put them together into one tensor of n "
                "numbers (torch.cat).",
                when=lambda yours, expected, n: all(
                    torch.as_tensor(y).numel() == n
                    and torch.as_tensor(y).flatten().equal(e)
                    for y, e in zip(yours, expected, strict=True)),
            ),
            Mistake(
                "The tensor for the result is still as it was made: it goes first in the call, "
                "what you send second.",
                when=lambda yours, expected, n: all(not y.any() for y in yours),
            ),
            Mistake(
                "Every rank has the sum of the rows: an all_reduce adds, and here numbers only "
                "change places.",
                when=lambda yours, expected, n: same(yours, [_matrix(n).sum(0)] * n),
            ),
        ),
        hints=(
            "Rank i has piece j for rank j. Which of the nine collectives takes it there?",
            "dist.all_to_all_single(output, input) cuts its input into one piece a rank.",
            "column = torch.empty_like(row); then dist.all_to_all_single(column, row).",
        ),
    ),
    Exercise(
        id="03-3",
        title="Gather tensors of unequal length",
        answer="gather_uneven",
        trial=trial_gather,
        expected=expected_gather,
        forbids=("all_gather_object",),
        goals=(Goal("collectives", most=lambda n: 2),),
        mistakes=(
            Mistake(
                "The padding is still there: cut each piece to the length that its rank had.",
                when=lambda yours, expected, n: same(yours, [_padded(n).flatten()] * n),
            ),
            Mistake(
                "Each rank cuts all pieces to its own length; every piece has a length of its own.",
                when=lambda yours, expected, n: same(
                    yours, [_padded(n)[:, : r + 1].flatten() for r in range(n)]),
            ),
            Mistake(
                "Each rank has its own numbers only.",
                when=lambda yours, expected, n: same(yours, [_uneven(r) for r in range(n)]),
            ),
            Mistake(
                "An all_gather needs the same shape on every rank, and here each brings another "
                "length. Agree on the longest first, and fill up to it.",
                when=lambda yours, expected, n: failed(yours),
            ),
        ),
        hints=(
            "An all_gather moves equal shapes only. Who knows how long the others' tensors are?",
            "First gather the lengths (one number a rank). Then fill up to the longest and gather.",
            "padded = torch.zeros(max(lengths), device=device); padded[: len(x)] = x; gather that, "
            "cut piece i to lengths[i], and torch.cat them.",
        ),
        seconds=30,
    ),
    Exercise(
        id="03-4",
        title="Build a broadcast of messages",
        answer="pass_on",
        trial=trial_broadcast,
        expected=expected_broadcast,
        forbids=("broadcast", "all_reduce", "all_gather", "scatter", "all_to_all",
                 "broadcast_object_list", "send_object_list"),
        goals=(Goal("messages sent", most=lambda n: 1),),
        mistakes=(
            Mistake(
                "Ranks wait for one another. The source sends first, everybody else receives "
                "first, and the last one in the chain does not send at all.",
                when=lambda yours, expected, n: failed(yours, "Deadlock"),
            ),
            Mistake(
                "That is what rank 0 had. The chain begins at src, wherever that is.",
                when=lambda yours, expected, n: same(
                    yours, [torch.tensor([0.0, 1.0])] * n),
            ),
            Mistake(
                "Some ranks still have their own numbers: the chain ends too early, or begins too "
                "late.",
                when=lambda yours, expected, n: any(
                    not failed([y]) and not y.equal(expected[0])
                    and y.equal(torch.tensor([100.0 * r, 100.0 * r + 1]))
                    for r, y in enumerate(yours)),
            ),
            Mistake(
                "It works, but the source sends n − 1 messages, one after the other. Let each rank "
                "pass it on to the next one.",
                missed="messages sent",
            ),
        ),
        hints=(
            "A chain: the source sends to the next rank, which sends to the next, and so on.",
            "Count from the source: step = (rank - src) % world_size is 0 for the source and "
            "world_size - 1 for the last.",
            "If step > 0, receive from the rank before; if step < world_size - 1, send to the rank "
            "after. Both neighbours with % world_size.",
        ),
    ),
    Exercise(
        id="03-5",
        title="Find the largest numbers of all ranks",
        answer="largest_of_all",
        trial=trial_top,
        expected=expected_top,
        forbids=("all_gather_object", "gather_object"),
        goals=(
            Goal("collectives", exactly=lambda n: 1),
            Goal("bytes sent", most=lambda n: FLOAT * TOP),
        ),
        mistakes=(
            Mistake(
                "Those are the largest numbers of the rank itself: nothing has crossed between "
                "ranks.",
                when=lambda yours, expected, n: same(
                    yours, [_best(_scores(r)) for r in range(n)]),
            ),
            Mistake(
                "Each rank brings only its largest number, but two of the largest may be on the "
                "same rank: bring k of each.",
                when=lambda yours, expected, n: same(
                    yours, [_best(torch.stack([_scores(r).max() for r in range(n)]))] * n),
            ),
            Mistake(
                "That is everything that was gathered, k numbers of each rank: choose the k "
                "largest among them once more.",
                when=lambda yours, expected, n: all(y.numel() == TOP * n for y in yours),
            ),
            Mistake(
                "Those are the largest of each place: MAX compares first with first and second "
                "with second. Bring the numbers together, then choose.",
                when=lambda yours, expected, n: same(
                    yours, [torch.stack([_best(_scores(r)) for r in range(n)]).max(0).values] * n),
            ),
            Mistake(
                "The numbers are right, but every rank brings all that it has. None but its own k "
                "largest can be among the k largest of all.",
                missed="bytes sent",
            ),
        ),
        hints=(
            "Which of a rank's numbers can be among the k largest of all? No more than k.",
            "Take the k largest of x, gather those of all ranks into one tensor of "
            "world_size * k, and take the k largest of that.",
            "mine = x.topk(k).values; everyone = torch.empty(world_size * k, device=device); "
            "dist.all_gather_into_tensor(everyone, mine); return everyone.topk(k).values.",
        ),
    ),
    Exercise(
        id="03-6",
        title="Do all ranks hold the same?",
        answer="all_agree",
        trial=trial_agree,
        expected=expected_agree,
        goals=(Goal("collectives", exactly=lambda n: QUESTIONS),),
        mistakes=(
            Mistake(
                "The ranks come to different verdicts: each compares with what it holds itself. "
                "Compare two things that are the same everywhere: the smallest and the largest.",
                when=lambda yours, expected, n: any(
                    len({y[q] for y in yours}) > 1 for q in range(QUESTIONS)),
            ),
            Mistake(
                "3, 7 and 7, 3 have the same sum and are not the same: compare place by place.",
                when=lambda yours, expected, n: all(y[3] is True for y in yours),
            ),
            Mistake(
                "It says yes where a rank holds something else. Of how many places does it look at "
                "the result? All have to agree.",
                when=lambda yours, expected, n: all(
                    any(y[q] is True and e[q] is False for q in range(QUESTIONS))
                    for y, e in zip(yours, expected, strict=True)),
            ),
            Mistake(
                "The verdict is right, but it takes two collectives: the smallest number is the "
                "largest of the negative ones, with the sign turned, so one MAX gives both.",
                missed="collectives",
            ),
        ),
        hints=(
            "If the smallest of all ranks is also the largest, everybody holds the same.",
            "MAX of -x over the ranks is minus the MIN of x. One tensor can carry both x and -x.",
            "both = torch.cat([x, -x]); all_reduce it with MAX; largest, smallest = both.chunk(2); "
            "they agree if largest.equal(-smallest).",
        ),
    ),
    Exercise(
        id="03-7",
        title="Let every node follow its best rank",
        answer="follow_the_best",
        trial=trial_follow,
        expected=expected_follow,
        forbids=("all_gather_object",),
        goals=(Goal("collectives", most=lambda n: 2),),
        mistakes=(
            Mistake(
                "src= is a rank of the world, and what you give is a place in the group. Say "
                "group_src=, or ask dist.get_global_rank(node, place).",
                when=lambda yours, expected, n: _says(yours, "not part of group"),
            ),
            Mistake(
                "Every rank has what the best rank of the whole world had: hand node to both calls "
                "as group=.",
                when=lambda yours, expected, n: len(_nodes(n)) > 1 and same(
                    yours, [_held(max(range(n), key=_score))] * n),
            ),
            Mistake(
                "There is room for as many scores as the world has ranks; the node has "
                "dist.get_world_size(node).",
                when=lambda yours, expected, n: failed(yours, "RuntimeError", "ValueError"),
            ),
            Mistake(
                "Nobody has changed: the best one is known, but its tensor stays where it is.",
                when=lambda yours, expected, n: same(yours, [_held(r) for r in range(n)]),
            ),
            Mistake(
                "Every node follows its first rank, not its best one.",
                when=lambda yours, expected, n: same(
                    yours, [_held(node[0]) for node in _nodes(n) for _ in node]),
            ),
        ),
        hints=(
            "Two steps: every rank of the node learns all its scores, then the best one "
            "broadcasts.",
            "Gather the scores with group=node, into a tensor of dist.get_world_size(node); its "
            "argmax counts within the group.",
            "dist.all_gather_into_tensor(scores, torch.tensor([score], device=device), group=node);"
            " dist.broadcast(x, group_src=int(scores.argmax()), group=node).",
        ),
    ),
    Exercise(
        id="03-8",
        title="Compute while the sum is on its way",
        answer="average_meanwhile",
        trial=trial_meanwhile,
        expected=expected_meanwhile,
        mistakes=(
            Mistake(
                "compute() runs after the sum: the ranks that came early wait for the last one and "
                "do nothing meanwhile. Start with async_op=True, compute, then wait.",
                when=lambda yours, expected, n: _when(yours, TOO_LATE),
            ),
            Mistake(
                "compute() runs before the sum has begun, so nobody can work on it meanwhile. "
                "Start it first, with async_op=True.",
                when=lambda yours, expected, n: _when(yours, TOO_EARLY),
            ),
            Mistake(
                "compute is never called.",
                when=lambda yours, expected, n: _when(yours, "never"),
            ),
            Mistake(
                "That is the sum; divide it by the number of ranks, after wait().",
                when=lambda yours, expected, n: all(
                    abs(y[1] - n * e[1]) < 1e-3 for y, e in zip(yours, expected, strict=True)),
            ),
            Mistake(
                "A rank took its average before the last one had come: x is not yours to read or "
                "change until wait() has returned.",
                when=lambda yours, expected, n: any(
                    abs(y[1] - e[1]) > 1e-3 for y, e in zip(yours, expected, strict=True)),
            ),
        ),
        hints=(
            "Three steps: start the sum, call compute, and only then wait for the sum.",
            "work = dist.all_reduce(x, async_op=True) returns at once; work.wait() returns when x "
            "holds the sum.",
            "work = dist.all_reduce(x, async_op=True); computed = compute(); work.wait(); return "
            "x / world_size, computed.",
        ),
        seconds=40,
    ),
)  # fmt: skip
