"""Compare what an answer gave with what was expected, and name what is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..rank_names import label
from ..wire.trial import Found
from . import sentences
from .clues import clue
from .compare import same
from .difference import entries
from .exercise import CONSEQUENCES, Exercise, Failed, Mistake


@dataclass
class Verdict:
    """What came of a check.

    ``name`` says it in short: "passed", the sentence of a mistake, "forbidden: all_reduce",
    "goal: bytes sent", the name of an error, "nothing" or "different".
    """

    name: str
    sentence: str = ""
    #: which of the exercise's it is, if it is one of those
    mistake: Mistake | None = None

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
    crossed: str = ""  #: what was said of groups that each rank has made for itself
    #: of a file the parts of its trial, in order, and whether each went as expected
    parts: list[tuple[str, bool]] = field(default_factory=list)
    found: Found = "written"  #: what there is by the answer's name; else nothing was tried

    @property
    def was_tried(self) -> bool:
        """Whether there was an answer by that name, so that it has been tried."""
        return self.found in ("written", "one size")

    @property
    def wrong(self) -> list[int]:
        """The ranks whose result differs from the expected one."""
        pairs = enumerate(zip(self.yours, self.expected, strict=True))
        return [rank for rank, pair in pairs if not same(*pair)]

    @property
    def gave_nothing(self) -> bool:
        """Whether all that is wrong is None."""
        pairs = [(self.yours[rank], self.expected[rank]) for rank in self.wrong]
        return bool(pairs) and all(_is_nothing(*pair) for pair in pairs)

    def on(self, ranks: Sequence[int]) -> str:
        """Return " on ranks 0–3", "" for an answer in the notebook."""
        return f" on {label(ranks)}" if self.exercise.where == "ranks" else ""

    def cause(self) -> Failed | None:
        """Return what failed by itself; None if nothing did.

        A process that ended comes first, then an error in the learner's own lines, and of the same
        kind that of the lowest rank.
        """
        own = [y for y in self.yours if isinstance(y, Failed) and y.is_cause()]
        return min(own, key=lambda y: (y.name != "Died", not y.lines), default=None)


def judge(result: Result) -> Verdict:
    """Decide: no answer at all first, then forbidden calls, wrong results, and missed goals."""
    exercise, n = result.exercise, result.world_size
    if result.found == "unwritten":
        return Verdict("nothing", sentences.unwritten(exercise))
    if result.found == "no function":
        return Verdict("no function", sentences.no_function(exercise))
    if result.forbidden:
        name = result.forbidden[0]
        return Verdict(f"forbidden: {name}", sentences.forbidden(name))
    if result.wrong or result.crossed:  # right by chance is wrong, too
        return _named(result) or _crossed(result) or _unnamed(result)
    for goal in exercise.goals:
        counts = [count[goal.measure] if count else 0 for count in result.counts]
        if not all(goal.is_met(count, n) for count in counts):
            for mistake in exercise.mistakes:
                if mistake.missed == goal.measure:
                    return _is(mistake)
            return Verdict(f"goal: {goal.measure}", sentences.missed(goal, counts))
    if result.found == "one size":
        return Verdict("one size", sentences.one_size(n))
    return Verdict("passed")


def _is_nothing(yours: Any, expected: Any) -> bool:
    """Tell whether a value is None, or a list or dict of which each part that differs is.

    A trial of several parts looks at other things too, which are right. A part that is itself a
    list of None is something: it has been returned. So is None where another part has to be None.
    """
    if isinstance(yours, Mapping) and isinstance(expected, Mapping):
        if yours.keys() != expected.keys():
            return False
        yours, expected = list(yours.values()), [expected[key] for key in yours]
    if not (isinstance(yours, list | tuple) and isinstance(expected, list | tuple)):
        parts = yours if isinstance(yours, list | tuple) and yours else [yours]
        return all(part is None for part in parts)
    if len(yours) != len(expected):
        return False
    if any(e is None for e in expected):
        return False
    pairs = zip(yours, expected, strict=True)
    return all(y is None for y, e in pairs if not same(y, e))


def _is(mistake: Mistake) -> Verdict:
    return Verdict(mistake.sentence, mistake.sentence, mistake)


def _named(result: Result) -> Verdict | None:
    """Return the misconception that came to light, if it is a known one."""
    return next((_is(m) for m in result.exercise.mistakes if _shows(m, result)), None)


def _shows(mistake: Mistake, result: Result) -> bool:
    """Tell whether a mistake shows in what ranks gave, or in how they failed."""
    if any(isinstance(y, Failed) for y in result.yours):
        cause = result.cause()
        if cause is None:
            return _fits(mistake.stuck, result.waited)
        return _fits(mistake.raises, cause.text())
    if result.crossed:  # it was chance that nobody waited in vain, and so are the values
        return _fits(mistake.stuck, result.crossed)
    if mistake.when is None:
        return False
    yours, expected = result.yours, result.expected
    if result.exercise.where != "ranks":
        yours, expected = yours[0], expected[0]
    try:
        return bool(mistake.when(yours, expected, result.world_size))
    except Exception:  # it did not expect such values: then it is not this one
        return False


def _fits(pattern: str | None, text: str) -> bool:
    return pattern is not None and re.search(pattern, text) is not None


def _crossed(result: Result) -> Verdict | None:
    """Name groups of one name with different members: numbers went to other ranks than meant."""
    if not result.crossed or result.cause() is not None:
        return None
    return Verdict("crossed groups", result.crossed)


def _unnamed(result: Result) -> Verdict:
    """Describe a wrong result that no mistake of the exercise does."""
    failed = {r: v for r, v in enumerate(result.yours) if isinstance(v, Failed)}
    if failed:
        cause = result.cause() or max(failed.values(), key=lambda v: CONSEQUENCES.index(v.name))
        ranks = [r for r, failure in failed.items() if failure.name == cause.name]
        where, others = result.on(ranks), [r for r in failed if r not in ranks]
        return Verdict(cause.name, sentences.failed(result.exercise, cause, where, others))
    if result.gave_nothing:
        return Verdict("nothing", f"It returns None{result.on(result.wrong)}: is a return missing?")
    return Verdict("different", _how_different(result))


def _how_different(result: Result) -> str:
    labels = result.exercise.labels(result.world_size)
    names: list[str] = []
    for rank in result.wrong:
        found = entries(result.yours[rank], result.expected[rank], labels) or []
        names += [name for name, *_ in found if name not in names]
    formula = result.exercise.formula
    slip = formula.slip(result.yours, result.world_size) if formula else ""
    said = clue(result.yours, result.expected, result.exercise.where == "ranks", slip)
    if said.startswith("The value"):  # right but for the type: no need to say that it differs
        where = result.on(result.wrong).removeprefix(" on ")
        return f"{where[:1].upper()}{where[1:]}: {said[:1].lower()}{said[1:]}" if where else said
    return f"{sentences.different(result.on(result.wrong), names)} {said}".rstrip()
