"""Word the verdicts that are not those of a mistake: what was seen, with numbers, and what next."""

from __future__ import annotations

from collections.abc import Sequence

from ..rank_names import fold, label
from .exercise import Exercise, Failed, Goal

#: What a rank's value is called that is still on its way.
_ON_ITS_WAY = ("Work", "Future")
#: Names of entries in one sentence.
_NAMES = 3
#: Characters of an error's message in a sentence; a longer one stands above it only.
_MESSAGE = 160


def unwritten(exercise: Exercise) -> str:
    """Say that the cell is as it was."""
    if exercise.start:
        return (
            f"`{exercise.answer}` does what {exercise.start} does: change it as exercise "
            f"{exercise.id} says, then check again."
        )
    return (
        f"`{exercise.answer}` is still empty: write it in the cell of exercise {exercise.id}, run "
        "that cell, then check again."
    )


def no_function(exercise: Exercise) -> str:
    """Say that the name stands for something else."""
    return (
        f"`{exercise.answer}` is not a function any more: a cell has given that name to something "
        f"else. Run the cell of exercise {exercise.id} again."
    )


def one_size(world_size: int) -> str:
    """Say that the number of ranks is written into the answer."""
    return (
        f"It is right on {world_size} ranks, but not on {world_size - 1}: the answer contains the "
        "number of ranks as a constant. Use world_size instead."
    )


def forbidden(name: str) -> str:
    """Say which call is forbidden."""
    return f"It calls dist.{name}, which this exercise forbids."


def missed(goal: Goal, counts: Sequence[int]) -> str:
    """Say what a right result cost, and what is allowed."""
    limit = goal.limit(len(counts))
    wrong = {r: c for r, c in enumerate(counts) if not goal.is_met(c, len(counts))}
    ranks, count = max(fold(wrong), key=lambda group: abs(group[1] - limit))
    who = "it" if len(ranks) == len(counts) else label(ranks)
    many = who.startswith("ranks")
    verb = {"collectives": "take" if many else "takes"}.get(
        goal.measure, "send" if many else "sends"
    )
    allowed = f"{limit:,}" if goal.most is not None else f"exactly {limit:,}"
    is_allowed = "is" if limit == 1 else "are"
    rule = "allowed" if goal.most is not None or count > limit else "expected"
    return (
        f"The result is right, but {who} {verb} {_amount(count, goal.measure)}; {allowed} "
        f"{is_allowed} {rule}."
    )


def _amount(count: int, measure: str) -> str:
    thing = measure.removesuffix(" sent")
    return f"{count:,} {thing.removesuffix('s') if count == 1 else thing}"


def different(where: str, names: Sequence[str]) -> str:
    """Say where a result differs, in which entries."""
    if not names:
        return f"The result{where} differs from the expected one."
    shown = ", ".join(names[:_NAMES])
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"The result{where} differs from the expected one in {shown}{more}."


def failed(exercise: Exercise, cause: Failed, where: str, others: Sequence[int]) -> str:
    """Say how an answer failed.

    Parameters
    ----------
    where
        Where it failed like that: " on rank 0", "" in the notebook.
    others
        The ranks that failed in another way.
    """
    if cause.unusable is not None:
        return _unusable(cause, where)
    if cause.name == "Deadlock":
        return f"It ends in a deadlock: the calls{where} wait for something that does not come."
    if cause.name == "TimedOut":
        line = f" It was in the line `{cause.lines[-1]}`." if cause.lines else ""
        return f"It did not end within {exercise.seconds:g} s{where}.{line}"
    if cause.name == "Stopped":
        return f"It was stopped{where}."
    if cause.name == "Died":
        text = f"It ended the process{where}: {cause.message}."
    else:
        text = f"It raises {cause.name}{where}{_in_short(cause)}."
    if others:
        text += f" {label(others).capitalize()} waited for what did not come after that."
    return text


def _in_short(cause: Failed) -> str:
    """Return the beginning of an error's message and the line that raised it."""
    message = cause.message.strip().split("\n")[0].rstrip(".")
    told = f": {message}" if 0 < len(message) <= _MESSAGE else ""
    line = cause.lines[-1] if cause.lines else ""
    return f"{told}, in the line `{line}`" if line else told


def _unusable(cause: Failed, where: str) -> str:
    found = cause.unusable
    assert found is not None
    if not found.returned:
        return (
            f"The check cannot call it: {found.message}. Keep the parameters that the first line "
            "of the cell had."
        )
    if found.returned.split()[-1] in _ON_ITS_WAY:
        return (
            f"It returns {found.returned}{where}, which is a promise of a result: call wait() on "
            "it, and return what has arrived then."
        )
    if "a function" in found.returned:
        return f"It returns {found.returned}{where}: call the function, f(), and return its result."
    if found.returned == "None":
        return f"It returns None{where}: is a return missing?"
    wanted = ", which is not what is expected"
    if found.wanted and found.returned.split()[-1] != found.wanted:
        wanted = f"; {found.wanted} is expected"
    return f"It returns {found.returned}{where}{wanted} ({found.error}: {found.message})."
