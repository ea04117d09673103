"""How many small changes of the solutions do the checks refuse?

The summary of the run has the score. ``LABKIT_MUTANTS=all`` tries every mutant, else a sample of
each exercise, which ``LABKIT_SEED`` chooses.
"""

from __future__ import annotations

import os
import random

import pytest

import labkit
from labkit.course.exercise import Exercise
from tests.course.test_answers import Record, attempt, lab
from tests.support.answers import EXERCISES
from tests.support.equivalent_mutants import EQUIVALENT
from tests.support.mutants import Mutant, mutants

__all__ = ["lab"]  # a fixture

#: The share of mutants that are to be refused.
LEAST = 0.97
#: Mutants of each exercise that are tried if not all are.
SAMPLE = 3


def chosen(exercise: Exercise) -> list[Mutant]:
    """Return the mutants of an exercise that are tried now, without those that change nothing."""
    known = EQUIVALENT.get(exercise.id, {})
    all_of_them = [mutant for mutant in mutants(exercise) if mutant.change not in known]
    if os.environ.get("LABKIT_MUTANTS") == "all" or len(all_of_them) <= SAMPLE:
        return all_of_them
    draw = random.Random(f"{os.environ.get('LABKIT_SEED', 0)} {exercise.id}")
    return draw.sample(all_of_them, SAMPLE)


@pytest.fixture(scope="module")
def tried() -> dict[str, bool]:
    """Collect which mutants were refused, for ``test_score``."""
    return {}


@pytest.mark.parametrize("name", EXERCISES)
def test_try(lab: labkit.Lab, tried: dict[str, bool], name: str, record_property: Record) -> None:
    """Try the mutants of one exercise; ``test_score`` judges."""
    found = {
        mutant.name: attempt(lab, EXERCISES[name], mutant.source) != "passed"
        for mutant in chosen(EXERCISES[name])
    }
    record_property("mutants", (sum(found.values()), len(found)))
    tried.update(found)
    for mutant, refused in found.items():
        if not refused:
            print(f"accepted: {mutant}")


def test_score(tried: dict[str, bool]) -> None:
    if not tried:
        pytest.skip("no mutant has run: make test-all runs them")
    accepted = [name for name, refused in tried.items() if not refused]
    assert len(accepted) <= (1 - LEAST) * len(tried), "\n".join(accepted)


def test_what_is_called_equivalent_is_a_mutant() -> None:
    for name, changes in EQUIVALENT.items():
        unknown = set(changes) - {mutant.change for mutant in mutants(EXERCISES[name])}
        assert not unknown, f"{name}: {unknown}"
