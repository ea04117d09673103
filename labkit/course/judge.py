"""Name what is wrong with what an answer gave."""

from __future__ import annotations

import re

from . import sentences
from .exercise import CONSEQUENCES, Exercise, Failed, Mistake
from .heuristics import heuristic
from .result import Result
from .verdict import Verdict


def judge(result: Result) -> Verdict:
    """Decide: no answer at all first, then forbidden calls, wrong results, and missed goals."""
    exercise = result.exercise
    if result.found == "unwritten":
        return Verdict(exercise.id, "nothing", sentences.unwritten(exercise))
    if result.found == "no function":
        return Verdict(exercise.id, "no function", sentences.no_function(exercise))
    if result.forbidden:
        name = result.forbidden[0]
        return Verdict(exercise.id, f"forbidden: {name}", sentences.forbidden(name))
    if result.wrong or result.crossed:  # right by chance is wrong, too
        for verdict in (_named(result), _crossed(result)):
            if verdict is not None:  # whether it has passed is what its truth says
                return verdict
        return _unnamed(result)
    for cost in result.costs:
        if cost.missed:
            measure = cost.goal.measure
            known = next((m for m in exercise.mistakes if m.missed == measure), None)
            if known is not None:
                return _is(known, exercise)
            return Verdict(exercise.id, f"goal: {measure}", sentences.missed(cost))
    if result.found == "one size":
        return Verdict(exercise.id, "one size", sentences.one_size(result.world_size))
    return Verdict(exercise.id, "passed")


def _is(mistake: Mistake, exercise: Exercise) -> Verdict:
    return Verdict(exercise.id, mistake.sentence, mistake.sentence, mistake.sentence)


def _named(result: Result) -> Verdict | None:
    """Return the misconception that came to light, if it is a known one."""
    exercise = result.exercise
    return next((_is(m, exercise) for m in exercise.mistakes if _shows(m, result)), None)


def _shows(mistake: Mistake, result: Result) -> bool:
    """Return whether a mistake shows in what ranks gave, or in how they failed."""
    if any(isinstance(y, Failed) for y in result.yours):
        cause = result.cause
        if cause is None:
            return _fits(mistake.stuck, result.waited)
        return _fits(mistake.raises, cause.text())
    if result.crossed:  # it was chance that nobody was blocked, and so are the values
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
    if not result.crossed or result.cause is not None:
        return None
    return Verdict(result.exercise.id, "crossed groups", result.crossed)


def _unnamed(result: Result) -> Verdict:
    """Describe a wrong result that no mistake of the exercise does."""
    exercise = result.exercise
    failed = {r: v for r, v in enumerate(result.yours) if isinstance(v, Failed)}
    if failed:
        cause = result.cause or max(failed.values(), key=lambda v: CONSEQUENCES.index(v.name))
        ranks = [r for r, failure in failed.items() if failure.name == cause.name]
        where, others = result.on(ranks), [r for r in failed if r not in ranks]
        sentence = sentences.failed(exercise, cause, where, others)
        return Verdict(exercise.id, cause.name, sentence)
    if result.gave_nothing:
        sentence = f"It returns None{result.on(result.wrong)}: is a return missing?"
        return Verdict(exercise.id, "nothing", sentence)
    return Verdict(exercise.id, "different", _how_different(result))


def _how_different(result: Result) -> str:
    where, said = result.on(result.wrong), heuristic(result)
    if said.startswith("The value"):  # right but for the type: no need to say that it differs
        ranks = where.removeprefix(" on ").capitalize()
        return f"{ranks}: {said[:1].lower()}{said[1:]}" if ranks else said
    return f"{sentences.different(where, result.differing)} {said}".rstrip()
