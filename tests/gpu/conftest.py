"""Labs that all files here share: each start on a GPU takes seconds of the few minutes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import labkit
from labkit.notebook.lab import current

from .ranks import restored, start


class Labs:
    """The lab that there is: a new one stops the one before it, as in a notebook."""

    def __init__(self) -> None:
        self._lab: labkit.Lab | None = None

    def of(self, ranks: int) -> labkit.Lab:
        """Return so many ranks, as an earlier test has left them, alive and idle."""
        lab = self._lab
        if lab is None or lab is not current() or len(lab) != ranks:
            lab = self._lab = start(ranks)
        return restored(lab)

    def stop(self) -> None:
        if self._lab is not None:
            self._lab.stop()


@pytest.fixture(scope="session")
def _labs() -> Iterator[Labs]:
    labs = Labs()
    yield labs
    labs.stop()


@pytest.fixture
def lab1(_labs: Labs) -> labkit.Lab:
    """Return one rank."""
    return _labs.of(1)


@pytest.fixture
def lab2(_labs: Labs) -> labkit.Lab:
    """Return two ranks."""
    return _labs.of(2)
