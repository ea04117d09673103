"""Exercise 07-3: find the slow rank, and what is slow there, on a timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import mean
from typing import Any

from ....notebook.timeline.timeline import Timeline
from ....wire.recording import WORK, Event, Recording
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

#: Milliseconds of each kind of work in each step, and of the all-reduce after it.
USUAL = dict(zip(WORK, (5, 20, 60, 8), strict=True))
ALL_REDUCE, STEPS = 6, 3
#: Milliseconds that a rank takes longer in a kind of work, or shorter; "all-reduce" is the last
#: one, which ends later on that rank.
Extra = Mapping[tuple[int, str], int]
#: The ranks that recorded, who is the slow one, in what, and how the steps differ from usual.
CASES: tuple[tuple[tuple[int, ...], tuple[int, str], Extra], ...] = (
    ((0, 1, 2, 3), (2, "forward"), {(2, "forward"): 100}),
    ((0, 1, 2, 3), (0, "data loading"), {(0, "data loading"): 30, (3, "forward"): 10}),
    ((0, 1), (1, "backward"), {(1, "backward"): 50}),
    ((0, 1, 2), (1, "optimizer"), {(1, "optimizer"): 40, (2, "data loading"): 4}),
    (
        (0, 1, 2, 3),
        (1, "backward"),
        {(1, "backward"): 60, (1, "forward"): -12, (3, "data loading"): 25, (3, "forward"): -15},
    ),
    (
        (1, 2, 3),
        (3, "forward"),
        {
            (3, "forward"): 35,
            (3, "optimizer"): 20,
            (3, "all-reduce"): 160,
            (1, "forward"): 5,
            (2, "backward"): 7,
        },
    ),
    ((2, 3, 5), (5, "data loading"), {(5, "data loading"): 45, (3, "optimizer"): 6}),
)


def record(ranks: tuple[int, ...], extra: Extra) -> Timeline:
    """Make up the recordings of ranks that train with one bucket."""
    took = {r: {kind: ms + extra.get((r, kind), 0) for kind, ms in USUAL.items()} for r in ranks}
    now = dict.fromkeys(ranks, 0)
    events: dict[int, list[Event]] = {r: [] for r in ranks}

    def note(rank: int, kind: str, start: int, stop: int, *key: object) -> None:
        members = ranks if key else ()
        events[rank].append(
            Event(kind, kind, start * 10**6, stop * 10**6, None, tuple(key), members)
        )

    for step in range(STEPS):
        begun: dict[int, int] = {}
        for r in ranks:
            for kind in WORK[:2]:
                note(r, kind, now[r], now[r] + took[r][kind])
                now[r] += took[r][kind]
            begun[r], now[r] = now[r], now[r] + took[r]["backward"]
        joined = max(now.values()) + ALL_REDUCE
        for r in ranks:
            end = joined + (extra.get((r, "all-reduce"), 0) if step == STEPS - 1 else 0)
            note(r, "backward", begun[r], end)
            note(r, "blocked", now[r], end)
            note(r, "communication", now[r], end, "collective", "0", ranks, step)
            now[r] = end + took[r]["optimizer"]
            note(r, "optimizer", end, now[r])
    return Timeline([Recording(r, 0, now[r] * 10**6, events[r]) for r in ranks])


def trial(answer: Callable[[Timeline], Any], here: Here) -> list[Any]:
    return [answer(record(ranks, extra)) for ranks, _, extra in CASES]


def expected() -> list[tuple[int, str]]:
    return [culprit for _, culprit, _ in CASES]


def _ranks_are(choose: Callable[[Timeline], int]) -> When:
    """Return the predicate of choosing that rank in every recording, whatever the kind."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        wrong = [choose(record(ranks, extra)) for ranks, _, extra in CASES]
        return [rank for rank, _ in yours] == wrong != [rank for rank, _ in expected]

    return when


def _place(timeline: Timeline) -> int:
    """Return the place of the rank that waits least."""
    waits = [timeline.seconds("waiting", rank) for rank in timeline.ranks]
    return waits.index(min(waits))


def _kinds_are(compare: Callable[[float, float], float], off: str = "blocked") -> When:
    """Return the predicate of the right ranks, and in every recording the kind with the most
    ``compare(mine, usual)``: its seconds on the slow rank, and their mean over the others; those of
    backward without the seconds of ``off``."""

    def choose(timeline: Timeline, rank: int) -> str:
        def work(kind: str, r: int) -> float:
            idle = timeline.seconds(off, r) if off and kind == "backward" else 0.0
            return timeline.seconds(kind, r) - idle

        others = [r for r in timeline.ranks if r != rank]
        return max(WORK, key=lambda k: compare(work(k, rank), mean(work(k, r) for r in others)))

    def when(yours: Any, expected: Any, n: int) -> bool:
        chosen = [(who, choose(record(ranks, extra), who)) for ranks, (who, _), extra in CASES]
        return [(rank, kind) for rank, kind in yours] == chosen

    return when


EXERCISE = Exercise(
    id="07-3",
    title="Find the slow rank",
    answer="culprit",
    setup="from labkit.notebook.timeline.timeline import Timeline",
    trial=trial,
    expected=expected,
    entries=tuple(
        f"recording {k} (ranks {', '.join(map(str, ranks))})"
        for k, (ranks, _, _) in enumerate(CASES, 1)
    ),
    where="notebook",
    mistakes=(
        Mistake(
            "You name the rank that waits longest. It waits because it is early: the slow rank is "
            "the one for which the others wait, and it hardly waits itself.",
            when=_ranks_are(lambda t: max(t.ranks, key=lambda r: t.seconds("waiting", r))),
        ),
        Mistake(
            "You name the rank that is blocked least. Blocked time is also that in which the data "
            "is on its way; how long a rank waits for others to join is in "
            'seconds("waiting", rank).',
            when=_ranks_are(lambda t: min(t.ranks, key=lambda r: t.seconds("blocked", r))),
        ),
        Mistake(
            "You name the place of the rank in timeline.ranks. The ranks need not begin at 0: "
            "return the rank that stands at that place.",
            when=_ranks_are(_place),
        ),
        Mistake(
            'The ranks are right, but not the kinds of work: take the time off "backward" in which '
            'the rank was blocked, seconds("blocked", rank). Its waiting time ends when the last '
            "rank has joined, and the rank is blocked until the data has arrived.",
            when=_kinds_are(lambda mine, usual: mine - usual, off="waiting"),
        ),
        Mistake(
            "The ranks are right, but you name the kind that takes several times as long as "
            "usual. The others wait for seconds: name the kind with the largest difference.",
            when=_kinds_are(lambda mine, usual: mine / usual),
        ),
        Mistake(
            'The ranks are right, but not the kinds of work: you compare "backward" with the '
            'time in it during which a rank only waited. Subtract seconds("blocked", rank).',
            when=_kinds_are(lambda mine, usual: mine - usual, off=""),
        ),
        Mistake(
            "The ranks are right, but you name the kind that takes longest there. Backward usually "
            "does, on every rank: look for the kind that takes longer than on the other ranks.",
            when=_kinds_are(lambda mine, usual: mine),
        ),
    ),
    hints=(
        'Which rank has hardly any hatching in its lower row? Ask for seconds("waiting", rank).',
        "The slow rank waits least. For each kind of work, compare its seconds with the mean of "
        "the other ranks; the largest difference is the culprit.",
        'For "backward", first subtract seconds("blocked", rank), on every rank: the early ranks '
        "spend the time in it during which they wait for the slow one.",
    ),
)
