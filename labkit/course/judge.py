"""Compare what an answer gave with what was expected, and name what is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..rank_names import label
from .compare import same
from .exercise import CONSEQUENCES, Exercise, Failed, Mistake

SENTENCES = {
    "Deadlock": "Ranks wait for one another in vain.",
    "TimedOut": "It did not end in time.",
    "Died": "A rank's process ended.",
    "Stopped": "It was stopped.",
}


@dataclass
class Verdict:
    """What came of a check.

    ``name`` says it in short: "passed", the sentence of a mistake, "forbidden: all_reduce",
    "goal: bytes sent", the name of an error, "nothing" or "different".
    """

    name: str
    sentence: str = ""
    mistake: Mistake | None = None  #: which of the exercise's it is, if it is one of those

    @property
    def passed(self) -> bool:
        return self.name == "passed"


@dataclass
class Result:
    """What an answer gave on each rank (one entry for an answer in the notebook)."""

    exercise: Exercise
    world_size: int
    yours: list[Any]
    expected: list[Any]
    #: per rank what was counted; None where the trial did not end
    counts: list[Mapping[str, int] | None] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)  #: functions that were called all the same
    notes: list[str] = field(default_factory=list)  #: errors with their lines, and what was done
    waited: str = ""  #: what was said about ranks that waited in vain, or whose time was up

    def cause(self) -> Failed | None:
        """Return what failed by itself; None if nothing did.

        A process that ended comes first, then an error in the learner's own lines, and of the same
        kind that of the lowest rank.
        """
        own = [y for y in self.yours if isinstance(y, Failed) and y.is_cause()]
        return min(own, key=lambda y: (y.name != "Died", not y.lines), default=None)


def judge(result: Result) -> Verdict:
    """Decide: forbidden calls first, then wrong results, then missed goals."""
    exercise, n = result.exercise, result.world_size
    if result.forbidden:
        name = result.forbidden[0]
        return Verdict(
            f"forbidden: {name}", f"It calls dist.{name}, which this exercise has to do without."
        )
    wrong = [r for r, pair in enumerate(zip(result.yours, result.expected, strict=True))
             if not same(*pair)]  # fmt: skip
    if wrong:
        return _named(result) or _unnamed(result, wrong)
    for goal in exercise.goals:
        counts = [count[goal.measure] if count else 0 for count in result.counts]
        if not all(goal.is_met(count, n) for count in counts):
            for mistake in exercise.mistakes:
                if mistake.missed == goal.measure:
                    return _is(mistake)
            return Verdict(
                f"goal: {goal.measure}", f"The result is right, but not the {goal.measure}."
            )
    return Verdict("passed")


def _is(mistake: Mistake) -> Verdict:
    return Verdict(mistake.sentence, mistake.sentence, mistake)


def _named(result: Result) -> Verdict | None:
    """Return the misconception that came to light, if it is a known one."""
    return next((_is(m) for m in result.exercise.mistakes if _shows(m, result)), None)


def _shows(mistake: Mistake, result: Result) -> bool:
    """Tell whether a mistake shows in what ranks gave, or in how they failed."""
    if any(isinstance(y, Failed) for y in result.yours):
        cause = result.cause()
        pattern, text = (
            (mistake.stuck, result.waited) if cause is None else (mistake.raises, cause.text())
        )
        return pattern is not None and re.search(pattern, text) is not None
    if mistake.when is None:
        return False
    yours, expected = result.yours, result.expected
    if result.exercise.where != "ranks":
        yours, expected = yours[0], expected[0]
    try:
        return bool(mistake.when(yours, expected, result.world_size))
    except Exception:  # it did not expect such values: then it is not this one
        return False


def _unnamed(result: Result, wrong: Sequence[int]) -> Verdict:
    where = f" on {label(wrong)}" if result.exercise.where == "ranks" else ""
    failed = {r: v for r, v in enumerate(result.yours) if isinstance(v, Failed)}
    if failed:
        rank = min(failed, key=lambda r: (failed[r].name in CONSEQUENCES,
                                          CONSEQUENCES[::-1].index(failed[r].name)
                                          if failed[r].name in CONSEQUENCES else 0))  # fmt: skip
        name = failed[rank].name
        here = [r for r, failure in failed.items() if failure.name == name]
        place = f" on {label(here)}" if result.exercise.where == "ranks" else ""
        return Verdict(name, SENTENCES.get(name, f"It raises {name}{place}."))
    if all(result.yours[r] is None for r in wrong):
        return Verdict("nothing", f"It returns None{where}: is the cell as it was, or a return "
                                  "missing?")  # fmt: skip
    return Verdict("different", f"The result{where} is another one than expected.")
