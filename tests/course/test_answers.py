"""Every exercise with its stub, its solution, another one, and wrong answers, on real ranks.

Stub and solution are those of the notebook. The others stand in ``tests/data/witnesses``: wrong
answers below the mistake that each of them shows.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import labkit
from labkit.course import check
from labkit.course.exercise import Exercise
from labkit.runtime.control import sample_idle
from tests.support import answers, witnesses
from tests.support.answers import EXERCISES
from tests.support.cells import inside, run_cell

#: What a test tells the summary of the run (``tests/conftest.py``).
Record = Callable[[str, object], None]

CASES = [
    (name, wrong) for name, exercise in EXERCISES.items() for wrong in witnesses.wrong(exercise)
]


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(4) as lab:
        yield lab


def forget(names: list[str]) -> None:
    """Remove names that cells have defined on a rank."""
    from IPython import get_ipython

    for name in names:
        get_ipython().user_ns.pop(name, None)


def attempt(lab: labkit.Lab, exercise: Exercise, source: str) -> str:
    """Run an answer's cell where it belongs, check it, and return the verdict's name.

    The names that it defined are gone afterwards, and so is a rank that it killed replaced.
    """
    if exercise.where == "file":
        return attempt_of_file(exercise, source)
    import __main__

    on_ranks = exercise.where == "ranks"
    names = {exercise.answer}
    try:
        for cell in filter(str.strip, [answers.setup(exercise), source]):
            if on_ranks:
                run_cell(lab, cell)
            else:
                exec(compile(cell, "<answer>", "exec"), vars(__main__))
        return examine(exercise)
    except labkit.LabError as error:
        return f"LabError: {error}"
    finally:
        if dead := sorted(inside(lab).cluster.deaths):
            lab.restart(ranks=dead)
        if on_ranks:
            lab.client.direct_view(lab.engine_ids).apply_sync(forget, sorted(names))
        vars(__main__).pop(exercise.answer, None)


def attempt_of_file(exercise: Exercise, source: str) -> str:
    """Write an answer's file into a folder of its own, check it, and return the verdict's name."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path(exercise.answer).write_text(f"{source}\n")
        return examine(exercise)


def examine(exercise: Exercise) -> str:
    """Check an answer; return the verdict's name, and leave pytest what a failure needs: what came
    of the answer, and where ranks stood that waited or did not end."""
    result, verdict = check.examine(exercise)
    print(f"{exercise.id}: {verdict.name}\n{result.yours}\n{result.waited}")
    return verdict.name


@pytest.mark.parametrize("name", EXERCISES)
def test_the_stub_is_known(lab: labkit.Lab, name: str) -> None:
    assert attempt(lab, EXERCISES[name], answers.stub(EXERCISES[name])) == "nothing"


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_of_the_notebook_passes(
    lab: labkit.Lab, name: str, record_property: Record
) -> None:
    assert attempt(lab, EXERCISES[name], answers.solution(EXERCISES[name])) == "passed"
    record_property("answer", "right")


@pytest.mark.parametrize("name", EXERCISES)
def test_another_solution_passes(lab: labkit.Lab, name: str, record_property: Record) -> None:
    exercise = EXERCISES[name]
    assert attempt(lab, exercise, answers.written(exercise, witnesses.right(exercise))) == "passed"
    record_property("answer", "right")


@pytest.mark.parametrize(("name", "wrong"), CASES, ids=lambda text: text.replace(" ", "_"))
def test_a_wrong_answer_is_named(
    lab: labkit.Lab, name: str, wrong: str, record_property: Record
) -> None:
    exercise = EXERCISES[name]
    witness = witnesses.of(exercise)[wrong]
    verdict = attempt(lab, exercise, answers.written(exercise, witness))
    assert verdict.startswith(witness.says)
    record_property("answer", "named" if witnesses.is_named(exercise, witness) else "generic")


@pytest.mark.parametrize("seconds", [0.1, 0.14, 0.18])
def test_a_check_that_was_stopped_between_groups_leaves_nothing_behind(
    lab: labkit.Lab, seconds: float
) -> None:
    """Some ranks had made more groups than others; the next check blamed its answer for that."""
    exercise = EXERCISES["23-4"]
    right = answers.solution(exercise)
    attempt(lab, replace(exercise, seconds=seconds), right)
    made = {rank: sample.made for rank, sample in sample_idle(inside(lab).cluster).items()}
    assert attempt(lab, exercise, right) == "passed", f"groups made before: {made}"
