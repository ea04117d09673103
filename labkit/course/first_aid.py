"""Say what to look at first after an error: one sentence for each kind that learners meet often."""

from __future__ import annotations

import re

from .exercise import Failed

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
