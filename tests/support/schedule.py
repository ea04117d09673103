"""A pytest plugin: what takes long begins first, and long files are divided among the workers.

``make test`` loads it. pytest-xdist gives each worker one file after the other, those with the most
tests first; but a notebook of 34 cells takes longer than a file of 900 quick tests, and whoever
gets it last keeps all others waiting. Here a file of ``PARTS`` is several pieces of work, each with
a lab of its own; ``LONG`` begins, in this order.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

#: File -> what its tests have in common that belong together, in their parameters. A file whose
#: tests build on one another is not here.
PARTS = {
    "tests/course/test_answers.py": re.compile(r"\[(\d\d)-"),
    "tests/course/test_on_fake_nccl.py": re.compile(r"::(\w+\[\w+)\]"),
    "tests/ranks/test_correct_programs.py": re.compile(r"\[(\d) ranks"),
    "tests/ranks/test_deadlock_programs.py": re.compile(r"\[(\d)-"),
    "tests/ranks/test_faults.py": re.compile(r"\[(\d)-"),
    "tests/ranks/test_random_programs.py": re.compile(r"\[(\d)-"),
    "tests/ranks/test_tables_on_fake_nccl.py": re.compile(r"\[(\d)-"),
}
#: Beginnings of what takes longer than a minute, the longest first.
LONG = (
    "notebooks/19_launchers_torchrun.ipynb",
    "tests/course/test_answers.py",
    "tests/ranks/test_tables_on_fake_nccl.py",
    "tests/ranks/test_deadlock_programs.py",
    "tests/ranks/test_correct_programs.py",
    "tests/ranks/test_lifecycle.py",
    "tests/course/test_mutants.py",
    "tests/ranks/test_random_programs.py",
    "tests/course/test_on_fake_nccl.py",
    "tests/ranks/test_stop_button.py",
    "tests/launchers",
    "tests/ranks/test_faults.py",
    "tests/project/test_wheel.py",
    "notebooks/2",
    "notebooks/1",
    "notebooks/0",
    "tests/browser",
    "tests/course/test_recipe.py",
    "tests/tools",
    "tests/ranks",
    "tests/project",
    "tests/course",
)


def piece_of(test: str) -> str:
    """Name the piece of work that a test belongs to."""
    file = test.partition("::")[0]
    found = PARTS[file].search(test) if file in PARTS else None
    return file if found is None else f"{file} {found[1]}"


def place_of(test: str) -> int:
    """Return the place of a test in the order in which work begins."""
    found = (place for place, start in enumerate(LONG) if test.startswith(start))
    return next(found, len(LONG))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first; in a file the order stays."""
    items.sort(key=lambda item: place_of(item.nodeid))


class Scheduling(LoadScopeScheduling):
    """Give each worker one piece of work after the other."""

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Make pytest-xdist divide the tests so."""
    config.option.loadscopereorder = False
    return Scheduling(config, log)
