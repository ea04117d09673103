"""Every exercise with its stub, its solution, another one, and wrong answers, on real ranks.

``answers/NN/NN-k.py`` is the corpus: ``WRONG`` has the source of a cell and the beginning of what
the check must say about it (``Verdict.name``), ``ANOTHER`` a second solution, ``SETUP`` a cell
that has to run before. Stub and solution are those of the notebook.
"""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest

import labkit
from labkit.course import catalogue, check, edition, material
from labkit.course.exercise import Exercise
from tests.support.cells import inside, run_cell

FOLDER = Path(__file__).parent / "answers"
PX = "%%px\n"

EXERCISES = {
    exercise.id: exercise
    for number in catalogue.numbers()
    for exercise in catalogue.of_notebook(number)
}


@cache
def corpus(exercise: str) -> dict[str, Any]:
    path = FOLDER / exercise[:2] / f"{exercise}.py"
    return runpy.run_path(str(path)) if path.is_file() else {"WRONG": {}, "ANOTHER": ""}


@cache
def definitions(number: str) -> dict[str, str]:
    """Return the defining cells of a number's exercises by id, of both halves if it has two."""
    found: dict[str, str] = {}
    for path in material.notebooks(number):
        found.update(edition.definitions(nbformat.read(path, as_version=4)))
    return found


def without_px(source: str) -> str:
    first, _, rest = source.partition("\n")
    return rest if first.startswith("%%px") else source


CASES = [(exercise, name) for exercise in EXERCISES for name in corpus(exercise)["WRONG"]]


# -- the corpus is whole ------------------------------------------------------------------------


def test_every_exercise_has_a_corpus_and_every_corpus_an_exercise() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*/*.py")) == sorted(EXERCISES)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_corpus_has_what_it_must_have(name: str) -> None:
    found = corpus(name)
    assert len(found["WRONG"]) >= 3
    assert found["ANOTHER"].strip()
    for source, said in found["WRONG"].values():
        ast.parse(source)
        assert said.strip()
    known = [mistake.sentence for mistake in EXERCISES[name].mistakes]
    for sentence in known:  # none that nothing shows to be reached
        assert any(sentence.startswith(said) for _, said in found["WRONG"].values()), sentence


@pytest.mark.parametrize("name", EXERCISES)
def test_the_notebook_defines_it(name: str) -> None:
    assert name in definitions(name[:2])


# -- on ranks -----------------------------------------------------------------------------------


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
    import __main__

    cells = [corpus(exercise.id).get("SETUP", ""), source]
    on_ranks = exercise.where == "ranks"
    names = {exercise.answer}
    try:
        for cell in filter(str.strip, map(without_px, cells)):
            if on_ranks:
                run_cell(lab, cell)
            else:
                exec(compile(cell, "<answer>", "exec"), vars(__main__))
        return check.examine(exercise)[1].name
    except labkit.LabError as error:
        return f"LabError: {error}"
    finally:
        if dead := sorted(inside(lab).cluster.deaths):
            lab.restart(ranks=dead)
        if on_ranks:
            lab.client.direct_view(lab.engine_ids).apply_sync(forget, sorted(names))
        vars(__main__).pop(exercise.answer, None)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_stub_fails(lab: labkit.Lab, name: str) -> None:
    source = edition.stub(definitions(name[:2])[name])
    assert attempt(lab, EXERCISES[name], source) != "passed"


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_of_the_notebook_passes(lab: labkit.Lab, name: str) -> None:
    assert attempt(lab, EXERCISES[name], edition.solved(definitions(name[:2])[name])) == "passed"


@pytest.mark.parametrize("name", EXERCISES)
def test_another_solution_passes(lab: labkit.Lab, name: str) -> None:
    assert attempt(lab, EXERCISES[name], corpus(name)["ANOTHER"]) == "passed"


@pytest.mark.parametrize(("name", "wrong"), CASES, ids=lambda text: text.replace(" ", "_"))
def test_a_wrong_answer_is_named(lab: labkit.Lab, name: str, wrong: str) -> None:
    source, said = corpus(name)["WRONG"][wrong]
    verdict = attempt(lab, EXERCISES[name], source)
    assert verdict.startswith(said)
