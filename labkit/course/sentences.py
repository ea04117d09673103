"""Word the verdicts that are not those of a mistake, and the first tip after an error: what was
seen, with numbers, and what next."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..base.rank_names import fold, label
from .exercise import Exercise, Failed
from .result import Cost

#: What a rank's value is called that is still on its way.
_ON_ITS_WAY = ("Work", "Future")
#: Names of entries in one sentence.
_NAMES = 3
#: Characters of an error's message in a sentence; a longer one stands above it only.
_MESSAGE = 160

#: What an error's "Type: message" has, and what to do about it.
ADVICE = (
    (
        r"^NameError: name '(?P<name>\w+)'",
        "{name} is not defined there. A rank has the names that %%px cells have defined, and rank, "
        "world_size, device, torch and dist; a cell without %%px defines names in the notebook.",
    ),
    (
        r"^UnboundLocalError",
        "A name that is assigned anywhere in a function is local in all of it: give it a value "
        "before that line, on every path.",
    ),
    (
        r"^TypeError: (?P<name>[\w.<>]+)\(\) (takes|missing|got an unexpected)",
        "{name} is called with other arguments than its def line has. The check calls your answer "
        "as the exercise describes it: keep the parameters of the first line.",
    ),
    (
        r"'NoneType'",
        "Something there is None. Functions that change a tensor in place, dist.all_reduce and "
        "dist.broadcast among them, return None: call them on a line of their own and use the "
        "tensor afterwards. A function of yours without return gives None too.",
    ),
    (
        r"(size|shape)s? of tensor|broadcast shape|shapes cannot be multiplied|"
        r"size mismatch|invalid tensor size|shape '.*' is invalid",
        "Print the shapes of the tensors of that line just above it: print(a.shape, b.shape).",
    ),
    (
        r"same dtype|expected scalar type|result type .* can't be cast|invalid tensor type",
        "Print the dtypes of the tensors of that line just above it: print(a.dtype, b.dtype).",
    ),
    (
        r"^IndexError",
        "Print the length and the index just above that line. Indexes go from 0 to the length - 1.",
    ),
    (
        r"^KeyError",
        "Print the keys just above that line: print(list(table)). table.get(key) gives None for a "
        "key that is not there.",
    ),
    (
        r"^AttributeError: .* has no attribute '(?P<name>\w+)'",
        "Print what stands before .{name} in that line, and its type.",
    ),
    (
        r"Boolean value of Tensor|only one element tensors|a Tensor with \d+ elements",
        "A tensor of several numbers is neither true nor false, and is no number: choose one "
        "element, or reduce it with any(), all(), max() or sum().",
    ),
    (
        r"There is no rank -?\d+ in this group",
        "Ranks go from 0 to world_size - 1: print the rank that you compute just above that line.",
    ),
    (
        r"[Ll]eaf [Vv]ariable|leaf variable that requires grad|a view of a leaf",
        "Change parameters inside torch.no_grad(), or change p.data.",
    ),
)


def unwritten(exercise: Exercise) -> str:
    """Return the sentence that the cell is as it was."""
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
    """Return the sentence that the name stands for something else."""
    return (
        f"`{exercise.answer}` is not a function any more: a cell has given that name to something "
        f"else. Run the cell of exercise {exercise.id} again."
    )


def one_size(world_size: int) -> str:
    """Return the sentence that the number of ranks is written into the answer."""
    return (
        f"It is right on {world_size} ranks, but not on {world_size - 1}: the answer contains the "
        "number of ranks as a constant. Use world_size instead."
    )


def forbidden(name: str) -> str:
    """Return which call is forbidden."""
    return f"It calls dist.{name}, which this exercise forbids."


def missed(cost: Cost) -> str:
    """Return what a right result cost, and what is allowed."""
    measure, limit = cost.goal.measure, cost.limit
    ranks, count = max(fold(cost.missed), key=lambda group: abs(group[1] - limit))
    who = "it" if len(ranks) == len(cost.counts) else label(ranks)
    verb = "take" if measure == "collectives" else "send"
    verb += "" if who.startswith("ranks") else "s"
    at_most = cost.goal.most is not None
    allowed = f"{'' if at_most else 'exactly '}{limit:,} {'is' if limit == 1 else 'are'}"
    rule = "allowed" if at_most or count > limit else "expected"
    return f"The result is right, but {who} {verb} {_amount(count, measure)}; {allowed} {rule}."


def _amount(count: int, measure: str) -> str:
    thing = measure.removesuffix(" sent")
    return f"{count:,} {thing.removesuffix('s') if count == 1 else thing}"


def different(where: str, names: Sequence[str]) -> str:
    """Return where a result differs, in which entries."""
    if not names:
        return f"The result{where} differs from the expected one."
    shown = ", ".join(names[:_NAMES])
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"The result{where} differs from the expected one in {shown}{more}."


def failed(exercise: Exercise, cause: Failed, where: str, others: Sequence[int]) -> str:
    """Return how an answer failed, and where: " on rank 0". ``others`` failed in another way."""
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
        text += f" {label(others).capitalize()} then waited for a rank that had failed."
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


def advice(failed: Failed) -> str:
    """Return where to look after an error of the answer, and for what.

    ``""`` for an error that did not come through a line of the answer.
    """
    if not failed.lines:
        return ""
    text = f"{failed.name}: {failed.message}"
    found = ((re.search(pattern, text), said) for pattern, said in ADVICE)
    what = next((said.format(**match.groupdict()) for match, said in found if match), "")
    line = f"Begin with the line that raised the error: `{failed.lines[-1]}`."
    return f"{line} {what}".rstrip()
