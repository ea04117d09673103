"""Exercise 11-3: find the newest checkpoint that can be loaded; some are truncated or hostile."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

GOOD = {"step": 1, "weight": torch.zeros(3)}
DRAFTS = ("step-12.pt.tmp",)
#: Files that can be loaded, with numbers in their names, and that are no step-….pt.
STRANGERS = ("old-99.pt", "my-step-98.pt")


class _Hostile:
    """A pickle that makes a folder when it is read."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (self.folder, 0o777, True)


def trial(answer: Callable[[str], Any], here: Here) -> dict[str, Any]:
    """Ask for the newest in a folder of good, truncated and hostile files, and in an empty one."""
    with tempfile.TemporaryDirectory() as home:
        folder, empty, marker = (os.path.join(home, name) for name in ("a", "b", "ran"))
        os.mkdir(folder)
        os.mkdir(empty)
        for name in ("step-2.pt", "step-9.pt", "step-10.pt", *DRAFTS, *STRANGERS, "notes.txt"):
            torch.save(GOOD, os.path.join(folder, name))
        whole = Path(folder, "step-9.pt").read_bytes()
        Path(folder, "step-11.pt").write_bytes(whole[: len(whole) // 2])
        torch.save({"weight": _Hostile(marker)}, os.path.join(folder, "step-13.pt"))
        for age, name in enumerate(("step-2.pt", "step-10.pt", "step-9.pt", "step-11.pt")):
            os.utime(os.path.join(folder, name), (age, age))  # the last one is the first
        later = time.time() + 60
        os.utime(os.path.join(folder, "step-2.pt"), (later, later))
        found = answer(folder)
        ran = os.path.exists(marker)
        try:
            none = answer(empty)
        except (ValueError, IndexError) as error:
            none = type(error).__name__
    return {"newest": found, "of an empty folder": none, "ran foreign code": ran}


def expected() -> dict[str, Any]:
    """Return what is known from how the files were made."""
    return {"newest": "step-10.pt", "of an empty folder": None, "ran foreign code": False}


def _newest_is(*names: str) -> When:
    """Return the predicate of an answer that names one of these, or gives its path."""
    return lambda yours, expected, n: os.path.basename(str(yours["newest"])) in names


EXERCISE = Exercise(
    id="11-3",
    title="Find the newest good one",
    answer="newest",
    setup="""
        import os
        import re

        import torch
    """,
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "A file has run its own code: call torch.load with weights_only=True.",
            when=lambda yours, expected, n: yours["ran foreign code"],
        ),
        Mistake(
            "step-12.pt.tmp is an unfinished draft: take only names that end in .pt.",
            when=_newest_is(*DRAFTS),
        ),
        Mistake(
            "That file has another name than step-….pt, so its number is no step. Take a name "
            'only if re.fullmatch(r"step-(\\d+)\\.pt", name) finds it.',
            when=_newest_is(*STRANGERS),
        ),
        Mistake(
            "That file cannot be loaded: it is incomplete, or holds what weights_only=True "
            "refuses. Try torch.load, and go on to the next file after an error.",
            when=_newest_is("step-11.pt", "step-13.pt"),
        ),
        Mistake(
            "As text, step-9 comes after step-10. Sort by the number: int(match[1]).",
            when=_newest_is("step-9.pt"),
        ),
        Mistake(
            "The step of step-2.pt is not the highest, though that file was written last. The "
            "number in the name counts, and not the time: begin with the highest.",
            when=_newest_is("step-2.pt"),
        ),
        Mistake(
            "The search ends at a file that cannot be loaded: catch its error, and try the next "
            "one.",
            raises=r"Weights only load failed|PytorchStreamReader|^(UnpicklingError|EOFError)",
        ),
        Mistake(
            "For a folder without checkpoints, return None.",
            when=lambda yours, expected, n: (
                yours["newest"] == expected["newest"] and yours["of an empty folder"] is not None
            ),
        ),
        Mistake(
            "That is the right file, but not its name, step-10.pt.",
            when=_newest_is("step-10.pt", "step-10", "10"),
        ),
    ),
    hints=(
        "Collect the names with their numbers, sort them, and try one after another, from the "
        "highest.",
        "Sort with key=lambda match: int(match[1]) and reverse=True; a try around torch.load "
        "tells whether a file is good.",
        "In the loop over the sorted matches: torch.load inside try, then return the name; after "
        "an error, continue. If the loop ends, there was no good file.",
    ),
)
