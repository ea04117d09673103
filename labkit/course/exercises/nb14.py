"""The exercises of notebook 14: which tool when, and what a larger machine will cost.

All of them live in the notebook: they are formulas and decisions. What usually goes wrong is
played through and compared with what came back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..exercise import Exercise, Here, Mistake
from ..mistakes import When, near, would_give

GIB = 2**30
#: α in seconds and β in seconds a byte: within a host, and between hosts.
FAST, SLOW = (5e-6, 1e-11), (2e-5, 8e-10)


# -- 14-1: which tool for which step ----------------------------------------------------------

#: The cases of the notebook, in its order: the arguments, and the answer.
CASES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("small", {"state": GIB, "gpus": 1, "hosts": 1}, "one GPU"),
    ("several", {"state": GIB, "gpus": 4, "hosts": 1}, "DDP"),
    ("hosts", {"state": GIB, "gpus": 4, "hosts": 2}, "torchrun"),
    (
        "risky",
        {"state": GIB, "gpus": 4, "hosts": 8, "must_survive": True},
        "elastic",
    ),
    ("large", {"state": 112 * GIB, "gpus": 4, "hosts": 1}, "FSDP"),
    (
        "both",
        {"state": 112 * GIB, "gpus": 2, "hosts": 2, "must_survive": True},
        "FSDP",
    ),
    ("too large", {"state": 112 * GIB, "gpus": 1, "hosts": 2}, "more GPUs"),
    ("roles", {"state": GIB, "gpus": 2, "hosts": 2, "alike": False}, "RPC"),
)
GPU_BYTES = 40 * GIB
STEPS = {"one GPU", "DDP", "torchrun", "elastic", "FSDP", "more GPUs", "RPC"}


def choose_trial(answer: Callable[..., Any], here: Here) -> dict[str, Any]:
    return {name: answer(gpu_bytes=GPU_BYTES, **case) for name, case, _ in CASES}


def choose_expected() -> dict[str, str]:
    return {name: step for name, _, step in CASES}


def _chose(case: str, *steps: str) -> When:
    return lambda yours, expected, n: yours[case] in steps


CHOOSE = Exercise(
    id="14-1",
    title="Which tool for which step",
    answer="choose",
    trial=choose_trial,
    expected=choose_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "Ranks with roles do not do the same work: DDP and FSDP are for ranks that are alike. "
            "Ask for that first.",
            when=_chose("roles", *STEPS - {"RPC"}),
        ),
        Mistake(
            "Even in parts, 112 GiB do not fit on two GPUs of 40: compare the state with all of "
            "the memory, gpu_bytes * gpus * hosts.",
            when=_chose("too large", "FSDP", "torchrun"),
        ),
        Mistake(
            "112 GiB fit on four GPUs of 40. It needs more GPUs only if they do not fit on all of "
            "them together.",
            when=_chose("large", "more GPUs"),
        ),
        Mistake(
            "Two machines of two GPUs each have 160 GiB together: count the GPUs of all hosts.",
            when=_chose("both", "more GPUs"),
        ),
        Mistake(
            "With DDP every rank keeps the whole state. What does not fit on one GPU needs FSDP.",
            when=_chose("large", "DDP", "torchrun"),
        ),
        Mistake(
            "Elastic restarts processes; it makes no state smaller. What does not fit on one GPU "
            "needs FSDP, and torchrun can restart that too.",
            when=_chose("both", "elastic"),
        ),
        Mistake(
            "The risky one has to survive a loss, and plain torchrun ends when a worker does. Ask "
            "for must_survive before you ask for hosts.",
            when=_chose("risky", "torchrun", "DDP"),
        ),
        Mistake(
            "One GPU is enough for the small one, which has no other.",
            when=_chose("small", *STEPS - {"one GPU"}),
        ),
        Mistake(
            "On one machine the lab, or mp.spawn, can start DDP; two machines need a launcher on "
            "each.",
            when=lambda yours, expected, n: (
                yours["several"] == "torchrun" or yours["hosts"] == "DDP"
            ),
        ),
    ),
    hints=(
        "Go from what nothing else can mend to what is only convenient: other roles, no room at "
        "all, no room on one GPU, one GPU, losses, hosts.",
        "Six questions, each with a return, in this order: not alike; state larger than all "
        "memory; state larger than one GPU; one GPU in all; must_survive; more than one host.",
        'After "RPC": if state > gpu_bytes * gpus * hosts it is "more GPUs"; if state > gpu_bytes '
        '"FSDP"; if gpus * hosts == 1 "one GPU"; then "elastic", "torchrun", and else "DDP".',
    ),
)


# -- 14-2: the time of a ring -----------------------------------------------------------------

#: (ranks, bytes of the tensor), with messages of 20 µs and 1 GB/s.
RINGS = ((2, 1000), (4, 10**6), (64, 4096), (1024, 10**9))
ALPHA, BETA = 2e-5, 1e-9


def ring(n: float, size: float, alpha: float, beta: float) -> float:
    """Return the seconds of a ring all-reduce: 2(n - 1) steps, each with an n-th of the tensor."""
    return 2 * (n - 1) * alpha + 2 * (n - 1) / n * size * beta


def ring_trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(n, size, ALPHA, BETA) for n, size in RINGS]


def ring_expected() -> list[float]:
    return [ring(n, size, ALPHA, BETA) for n, size in RINGS]


def _ring(wrong: Callable[[int, int], float]) -> When:
    return would_give(lambda _: [wrong(n, size) for n, size in RINGS])


RING = Exercise(
    id="14-2",
    title="The time of a ring",
    answer="ring_time",
    trial=ring_trial,
    expected=ring_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "You count half of it: n - 1 steps to add up, and n - 1 more to pass the sums on.",
            when=_ring(lambda n, size: ring(n, size, ALPHA, BETA) / 2),
        ),
        Mistake(
            "You send the whole tensor in every step. The ring sends a chunk: an n-th of it.",
            when=_ring(lambda n, size: 2 * (n - 1) * (ALPHA + size * BETA)),
        ),
        Mistake(
            "You pay α once. Every step is a message, and every message costs α.",
            when=_ring(lambda n, size: ALPHA + 2 * (n - 1) / n * size * BETA),
        ),
        Mistake(
            "Two steps too many: a chunk makes n - 1 hops to pass n ranks.",
            when=_ring(lambda n, size: 2 * n * (ALPHA + size / n * BETA)),
        ),
        Mistake(
            "You add up what all ranks send. They send at the same time: count one rank's steps.",
            when=_ring(lambda n, size: n * ring(n, size, ALPHA, BETA)),
        ),
    ),
    hints=(
        "How many steps are there, and how many bytes does a rank send in one of them?",
        "A step is one message of size / n bytes, which takes α + β · size / n.",
        "2 * (n - 1) * (alpha + size / n * beta).",
    ),
)


# -- 14-3: where ring and tree cross ----------------------------------------------------------

CROSSED = (4, 8, 64, 1024)


def crossing(n: int, alpha: float, beta: float) -> float:
    """Return the bytes at which ring and tree cost the same (n a power of two, above 2)."""
    levels = math.log2(n)
    return alpha * (n - 1 - levels) / (beta * (levels - (n - 1) / n))


def crossover_trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(n, ALPHA, BETA) for n in CROSSED]


def crossover_expected() -> list[float]:
    return [crossing(n, ALPHA, BETA) for n in CROSSED]


def _crossed(wrong: Callable[[int], float]) -> When:
    return would_give(lambda _: [wrong(n) for n in CROSSED])


def _one_way(n: int) -> float:
    """Cross the ring with a tree that only adds up."""
    levels = math.log2(n)
    return ALPHA * (2 * (n - 1) - levels) / (BETA * (levels - 2 * (n - 1) / n))


def _whole(n: int) -> float:
    """Cross the tree with a ring that sends whole tensors: a negative size."""
    levels = math.log2(n)
    return ALPHA * (n - 1 - levels) / (BETA * (levels - (n - 1)))


CROSSOVER = Exercise(
    id="14-3",
    title="Where ring and tree cross",
    answer="crossover",
    trial=crossover_trial,
    expected=crossover_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "These are seconds, the cost at the crossing. Return the size there, in bytes.",
            when=_crossed(lambda n: ring(n, crossing(n, ALPHA, BETA), ALPHA, BETA)),
        ),
        Mistake(
            "Your tree only adds up. It has to bring the sum back down: 2 · log2(n) messages.",
            when=_crossed(_one_way),
        ),
        Mistake(
            "A size below zero: your ring sends whole tensors. In each step it sends an n-th.",
            when=_crossed(_whole),
        ),
        Mistake(
            "log is the natural logarithm; a tree of pairs has log2(n) levels.",
            when=_crossed(
                lambda n: ALPHA * (n - 1 - math.log(n)) / (BETA * (math.log(n) - (n - 1) / n))
            ),
        ),
        Mistake(
            "α and β have changed places: more latency makes the tree worth while for larger "
            "tensors, so α is above the line.",
            when=_crossed(lambda n: crossing(n, BETA, ALPHA)),
        ),
        Mistake(
            "It is the other side of the fraction: solve ring = tree for the size once more.",
            when=_crossed(lambda n: 1 / crossing(n, ALPHA, BETA)),
        ),
    ),
    hints=(
        "Set the two times equal, bring everything with the size to one side, and divide.",
        "With L = log2(n), half of the equation is (n - 1)·α + (n - 1)/n·S·β = L·α + L·S·β.",
        "levels = log2(n); alpha * (n - 1 - levels) / (beta * (levels - (n - 1) / n)).",
    ),
)


# -- 14-4: two levels -------------------------------------------------------------------------

#: (hosts, ranks on each, bytes of the tensor).
LEVELS = ((2, 2, 10**6), (16, 8, 4096), (128, 8, 10**9))

#: (hosts, per_host, size) -> seconds.
Levels = Callable[[int, int, int], float]


def levels_trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(hosts, each, size, FAST, SLOW) for hosts, each, size in LEVELS]


def two_levels(hosts: int, each: int, size: float) -> float:
    return ring(each, size, *FAST) + ring(hosts, size, *SLOW)


def levels_expected() -> list[float]:
    return [two_levels(*case) for case in LEVELS]


def _levels(wrong: Levels) -> When:
    return would_give(lambda _: [wrong(*case) for case in LEVELS])


HIERARCHICAL = Exercise(
    id="14-4",
    title="Two levels",
    answer="hierarchical_time",
    trial=levels_trial,
    expected=levels_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "This is one flat ring over all ranks. Between hosts there are only hosts steps.",
            when=_levels(lambda hosts, each, size: ring(hosts * each, size, *SLOW)),
        ),
        Mistake(
            "You leave out what happens inside the hosts, before and after.",
            when=_levels(lambda hosts, each, size: ring(hosts, size, *SLOW)),
        ),
        Mistake(
            "You leave out what happens between the hosts.",
            when=_levels(lambda hosts, each, size: ring(each, size, *FAST)),
        ),
        Mistake(
            "Fast and slow have changed places: the slow links are those between hosts.",
            when=_levels(
                lambda hosts, each, size: ring(each, size, *SLOW) + ring(hosts, size, *FAST)
            ),
        ),
        Mistake(
            "A rank sends size / per_host bytes between hosts, but all per_host ranks of a host "
            "share its one cable: together it is the whole size again.",
            when=_levels(
                lambda hosts, each, size: ring(each, size, *FAST) + ring(hosts, size / each, *SLOW)
            ),
        ),
        Mistake(
            "Inside a host there are two rounds, reduce-scatter before and all-gather after; you "
            "count one.",
            when=_levels(
                lambda hosts, each, size: ring(each, size, *FAST) / 2 + ring(hosts, size, *SLOW)
            ),
        ),
        Mistake(
            "You count a whole all-reduce inside the host before, and another one after. Before it "
            "is a reduce-scatter, after it an all-gather: each is half of one.",
            when=_levels(
                lambda hosts, each, size: 2 * ring(each, size, *FAST) + ring(hosts, size, *SLOW)
            ),
        ),
    ),
    hints=(
        "Three phases: inside a host, between hosts, inside again. The first and the last are "
        "the two halves of one ring inside the host.",
        "Between hosts, the ranks of a host send size / per_host each, through one cable: for the "
        "cable it is a ring of hosts with the whole size.",
        "A ring of per_host with the fast pair, plus a ring of hosts with the slow pair, both with "
        "size: 2 * (k - 1) * alpha + 2 * (k - 1) / k * size * beta for each.",
    ),
)


# -- 14-5: efficiency -------------------------------------------------------------------------

#: Seconds by number of ranks, where the work stays the same and where every rank adds its own.
STRONG = {1: 8.0, 2: 4.4, 4: 2.5, 16: 1.0}
WEAK = {1: 1.0, 8: 1.1, 64: 1.25}


def efficiency_trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(dict(STRONG)), answer(dict(WEAK), weak=True)]


def _parts(times: Mapping[int, float], part: Callable[[int, float, float], float]) -> Any:
    return {n: part(n, times[1], t) for n, t in times.items()}


def efficiency_expected() -> list[dict[int, float]]:
    return [
        _parts(STRONG, lambda n, one, t: one / (n * t)),
        _parts(WEAK, lambda n, one, t: one / t),
    ]


def _efficient(part: Callable[[int, float, float], float], *, place: int) -> When:
    """Return the predicate of a mistake in the strong (0) or the weak (1) half."""
    times = (STRONG, WEAK)[place]
    return lambda yours, expected, n: near(yours[place], _parts(times, part))


EFFICIENCY = Exercise(
    id="14-5",
    title="Efficiency",
    answer="efficiency",
    trial=efficiency_trial,
    expected=efficiency_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "This is the speed-up, T1 / Tn. Efficiency is its part of n: divide by n too.",
            when=_efficient(lambda n, one, t: one / t, place=0),
        ),
        Mistake(
            "Upside down: half of the ideal speed is an efficiency of 0.5, not of 2.",
            when=_efficient(lambda n, one, t: n * t / one, place=0),
        ),
        Mistake(
            "In per cent? Return 1 for perfect, 0.5 for half.",
            when=_efficient(lambda n, one, t: 100 * one / (n * t), place=0),
        ),
        Mistake(
            "In weak scaling n ranks do n times the work: perfect is when the time stays as it is, "
            "so do not divide by n there.",
            when=_efficient(lambda n, one, t: one / (n * t), place=1),
        ),
        Mistake(
            "The weak half is upside down: longer than alone is less than 1.",
            when=_efficient(lambda n, one, t: t / one, place=1),
        ),
        Mistake(
            "It returns no dict. Return {n: efficiency} with the same keys as times.",
            when=lambda yours, expected, n: not any(isinstance(part, Mapping) for part in yours),
        ),
    ),
    hints=(
        "What would a perfect run on n ranks take? Efficiency is that, divided by the real time.",
        "Perfect is times[1] / n if the work is shared, and times[1] if every rank has its own.",
        "{n: times[1] / (t if weak else n * t) for n, t in times.items()}.",
    ),
)

EXERCISES = (CHOOSE, RING, CROSSOVER, HIERARCHICAL, EFFICIENCY)
