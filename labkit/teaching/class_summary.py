"""Say of a class who is where, which exercises take most tries, and which mistakes are named most.

Pure functions: from what learners have done to rows of text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ..course import catalogue
from ..course.exercise import COURSE_ID, Exercise
from ..course.progress import Entry
from .learners import Learner
from .records import printable

#: Exercises and mistakes that are listed: what a teacher can talk about in a lesson.
LISTED = 10
#: Learners who have tried an exercise before it is compared with others.
SEVERAL = 3
#: Characters of a sentence that is not the course's.
SENTENCE = 200


@dataclass(frozen=True)
class Section:
    """Hold one table: what it shows, the names of its columns, and its rows; the first cell of a
    row says what the row is about."""

    caption: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    empty: str  #: said in place of a table without rows


def sections(learners: Sequence[Learner]) -> list[Section]:
    """Return the tables about a class."""
    begun = [learner for learner in learners if learner.exercises]
    found = [who_is_where(begun), most_tries(begun), most_named(begun)]
    return [*found, without(learners)] if len(begun) < len(learners) else found


def headline(learners: Sequence[Learner]) -> str:
    """Say in a sentence or two how far a class is."""
    begun = [learner for learner in learners if learner.exercises]
    text = f"{_count(len(learners), 'learner')}, {len(begun)} with progress."
    if not begun:
        return text
    if len(begun) > 1:
        middle = median(learner.passed for learner in begun)
        more = f"{middle:g} exercise{'' if middle == 1 else 's'} or more"
        text += f" Half of them have passed {more}."
    return f"{text} Passed in all: {sum(learner.passed for learner in begun):,}."


def who_is_where(learners: Sequence[Learner]) -> Section:
    """Return a row per learner: what was worked on last, and what it all took."""
    head = ("learner", "last worked on", "passed", "tries", "hints", "solutions seen", "minutes",
            "last seen")  # fmt: skip
    return Section("Who is where", head, [_row(each) for each in learners], "Nobody has begun.")


def _row(learner: Learner) -> tuple[str, ...]:
    entries = learner.exercises.values()
    sums = (
        learner.passed,
        sum(entry.tries for entry in entries),
        sum(entry.hints for entry in entries),
        sum(entry.solution for entry in entries),
        round(sum(entry.minutes for entry in entries)),
    )
    latest = learner.latest
    seen = latest[1].last.astimezone() if latest is not None and latest[1].last else None
    when = f"{seen:%Y-%m-%d %H:%M}" if seen is not None else ""
    return (learner.name, _place(learner), *map(str, sums), when)


def _place(learner: Learner) -> str:
    if learner.latest is None:
        return f"notebook {learner.notebook}" if learner.notebook else ""
    name, entry = learner.latest
    if entry.passed:
        return f"{name}, passed"
    return f"{name}, {_tries(entry.tries)}" if entry.tries else f"{name}, not tried"


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"


def without(learners: Sequence[Learner]) -> Section:
    """Return the learners of whom nothing is known, and why."""
    rows: list[tuple[str, ...]] = [
        (learner.name, learner.problem or "Nothing has been checked yet.")
        for learner in learners
        if not learner.exercises
    ]
    return Section("Without progress", ("learner", "why"), rows, "Everybody has begun.")


def most_tries(learners: Sequence[Learner]) -> Section:
    """Return the exercises with the most tries: by the median, so that one learner with a hundred
    tries does not decide, and in a class only what several have tried."""
    tried: dict[str, list[Entry]] = defaultdict(list)
    for learner in learners:
        for name, entry in learner.exercises.items():
            if entry.tries:
                tried[name].append(entry)

    def cost(name: str) -> tuple[float, float, str]:
        counts = [entry.tries for entry in tried[name]]
        return -median(counts), -sum(counts) / len(counts), name

    least = min(SEVERAL, len(learners))
    rows: list[tuple[str, ...]] = []
    for name in sorted((n for n in tried if len(tried[n]) >= least), key=cost)[:LISTED]:
        own = tried[name]
        found = _of_course(name)
        rows.append((
            f"{name} {found.title}" if found is not None else name,
            f"{median(entry.tries for entry in own):g}",
            str(max(entry.tries for entry in own)),
            f"{sum(entry.passed for entry in own)} of {len(own)}",
            str(sum(entry.hints for entry in own)),
            str(sum(entry.solution for entry in own)),
        ))  # fmt: skip
    head = ("exercise", "tries (median)", "most tries", "passed", "hints", "solutions seen")
    return Section(
        "Exercises with the most tries", head, rows, "No exercise has been tried by several yet."
    )


def most_named(learners: Iterable[Learner]) -> Section:
    """Return the mistakes that were named to most learners.

    A sentence that is not the course's stands there only if two learners have it: no learner can
    write on the teacher's page.
    """
    whom: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for learner in learners:
        for name, entry in learner.exercises.items():
            for sentence, count in entry.mistakes.items():
                whom[name, sentence] += 1
                times[name, sentence] += min(count, entry.tries)
    rows: list[tuple[str, ...]] = []
    for (name, sentence), count in sorted(whom.items(), key=_by_count(times)):
        if len(rows) == LISTED:
            break
        found = _of_course(name)
        if found is None and count > 1:
            rows.append(
                (name, str(count), str(times[name, sentence]), printable(sentence, SENTENCE))
            )
        elif found is not None and any(m.sentence == sentence for m in found.mistakes):
            rows.append((name, str(count), str(times[name, sentence]), sentence))
    head = ("exercise", "learners", "times", "mistake")
    return Section("Mistakes named most", head, rows, "No known mistake has been named yet.")


Counted = tuple[tuple[str, str], int]


def _by_count(times: Counter[tuple[str, str]]) -> Callable[[Counted], tuple[int, int, str, str]]:
    return lambda item: (-item[1], -times[item[0]], *item[0])


def _of_course(name: str) -> Exercise | None:
    """Return an exercise of the course; None for a teacher's own, whose file is not run for it."""
    return catalogue.find(name) if COURSE_ID.fullmatch(name) else None


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
