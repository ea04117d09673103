"""Make what learners hand in: copies of the course with right, wrong and missing answers.

``python -m tests.support.homes FOLDER`` makes a class of thirty with notebooks 00 to 02: most of
them answer as learners do, and some do harm or cheat.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat

from labkit.course import catalogue, edition, material
from tests.support import witnesses

#: The endings of what a learner can answer, beside the names of wrong answers: the solution, the
#: other right answer, and the stub.
SOLUTION, OTHER, STUB = "solution", "other", "stub"
NUMBERS = ("00", "01", "02")

# -- cells that do harm, or cheat -----------------------------------------------------------------

ENDLESS = "while True:\n    pass"
ENDLESS_ON_RANKS = """%%px
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""
DELETES = """import os, shutil

for place in ("~", ".", "..", "/tmp", "/"):
    shutil.rmtree(os.path.expanduser(place), ignore_errors=True)
os.system("rm -rf ~ . /tmp/* 2> /dev/null")
"""
#: In the notebook: labkit's own functions are replaced, and it looks as if all were right.
FAKES_CHECK = """import labkit, json, sys
from labkit.course import check, judge, on_ranks, compare
from labkit.teaching import try_answer, run_inside

class Passed:
    passed, name, sentence, mistake = True, "passed", "", None
    def __init__(self, *args): pass

labkit.check = check.check = lambda name: print(f"{name} passed.")
judge.judge = on_ranks.judge = judge.Verdict = Passed
compare.same = lambda *args: True
on_ranks.attempts = lambda exercise: iter(())
json.dump({"version": 1, "exercises": {"00-1": {"passed": True}}}, open("progress.json", "w"))
print("00-1 passed.\\n00-2 passed.\\n00-3 passed.\\n00-4 passed.")
"""
#: On the ranks: what a trial gives is replaced by what labkit would expect.
FAKES_TRIAL = """%%px
import importlib
from labkit.rank.trial import trial as _trial

def _expected(trial, answer, forbids, here):
    module = importlib.import_module(trial.__module__)
    return module.expected(here.world_size)[here.rank], {}

_trial._run = _expected
"""
COPIES = 'labkit.solution("00-1", define=True)'
EATS = "%%px\nblocks = []\nwhile True:\n    blocks.append(bytearray(64 << 20))"
#: How long the processes sleep that a learner's cell leaves behind, in seconds.
LEFT = (["9876"], ["9877"])
LEAVES = """import os, subprocess, sys

subprocess.Popen(["sleep", "9876"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "9877"])
    os._exit(0)
"""


def notebook(
    number: str,
    answers: Mapping[str, str] | str = SOLUTION,
    extra: Mapping[str, str] | None = None,
    *,
    checks: bool = True,
    short: bool = False,
) -> Any:
    """Return a notebook as a learner hands it in.

    Parameters
    ----------
    number
        Of the course's notebook.
    answers
        Of each exercise, or of all: ``SOLUTION``, ``OTHER``, ``STUB`` or the name of a witness.
    extra
        Cells to be put before the answer of an exercise: id -> source.
    checks
        Whether its cells that check are there.
    short
        Leave out all other cells but those that start a lab: an answer counts on as many ranks
        as the course tries it.
    """
    (path,) = material.notebooks(number)
    nb = nbformat.read(path, as_version=4)
    of_cell = {source: name for name, source in edition.definitions(nb)}
    cells = []
    for own, cell in zip(nb.cells, edition.learners(nb).cells, strict=True):
        name = of_cell.get(own.source)
        if name is not None:
            if source := (extra or {}).get(name):
                cells.append(nbformat.v4.new_code_cell(source))
            answer = answers if isinstance(answers, str) else answers.get(name, STUB)
            cell.source = written(name, answer, own.source, cell.source)
        elif edition.CHECK.search(cell.source):
            if not checks:
                continue
        elif short and not (cell.cell_type == "code" and "labkit.start(" in cell.source):
            continue
        cells.append(cell)
    nb.cells = cells
    return nb


def written(name: str, answer: str, solved: str, stub: str) -> str:
    """Return the cell of an answer."""
    if answer == STUB:
        return stub
    first, _, rest = edition.solved(solved).partition("\n")
    if answer == SOLUTION:
        return f"{first}\n{rest}"
    exercise = catalogue.find(name)
    found = witnesses.right(exercise) if answer == OTHER else witnesses.of(exercise)[answer]
    if first.startswith("%%"):
        return f"{first}\n{found.written(rest, exercise.answer)}"
    return found.written(f"{first}\n{rest}", exercise.answer)


def hand_in(folder: Path, **notebooks: Any) -> Path:
    """Write notebooks into a copy of the course; ``nb00=…`` is 00. Return the copy."""
    inside = folder / "work" / "notebooks"
    inside.mkdir(parents=True, exist_ok=True)
    for name, nb in notebooks.items():
        (path,) = material.notebooks(name.removeprefix("nb"))
        nbformat.write(nb, inside / path.name)
    return folder


#: Who does harm or cheats: what their notebooks 00 and 01 are.
SPECIAL: dict[str, Callable[[], dict[str, Any]]] = {
    "endless": lambda: {"nb00": notebook("00", extra={"00-2": ENDLESS})},
    "endless_on_ranks": lambda: {"nb00": notebook("00", extra={"00-3": ENDLESS_ON_RANKS})},
    "deletes": lambda: {"nb00": notebook("00", extra={"00-4": DELETES})},
    "fakes_check": lambda: {"nb00": notebook("00", STUB, {"00-1": FAKES_CHECK})},
    "fakes_trial": lambda: {"nb00": notebook("00", {"00-3": "goes down"}, {"00-1": FAKES_TRIAL})},
    "copies": lambda: {"nb00": notebook("00", STUB, {"00-1": COPIES})},
    "eats": lambda: {"nb00": notebook("00", extra={"00-4": EATS})},
    "leaves": lambda: {"nb00": notebook("00", extra={"00-1": LEAVES})},
    "no_checks": lambda: {"nb00": notebook("00", checks=False)},
}


def a_class(folder: Path, size: int = 30, seed: int = 0) -> None:
    """Make the homes of a class: those of ``SPECIAL``, and others that answer at random."""
    draw = random.Random(seed)
    for name, notebooks in SPECIAL.items():
        rest = {f"nb{number}": at_random(number, draw) for number in NUMBERS[1:]}
        hand_in(folder / name, **notebooks(), **rest)
    for index in range(size - len(SPECIAL)):
        nbs = {f"nb{number}": at_random(number, draw) for number in NUMBERS}
        hand_in(folder / f"learner{index:02}", **nbs)


def at_random(number: str, draw: random.Random) -> Any:
    """Return a notebook of which most answers are right, and some wrong or missing."""
    answers = {}
    for name in catalogue.ids(number):
        wrong = sorted(witnesses.wrong(catalogue.find(name)))
        kind = draw.choices((SOLUTION, OTHER, STUB, draw.choice(wrong)), (5, 2, 1, 2))
        (answers[name],) = kind
    return notebook(number, answers)


if __name__ == "__main__":
    a_class(Path(sys.argv[1]))
