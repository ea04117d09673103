"""Labs that all files here share: each start on a GPU takes seconds of the few minutes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import labkit

from .ranks import restored, start


@pytest.fixture(scope="session")
def _one() -> Iterator[labkit.Lab]:
    with start(1) as lab:
        yield lab


@pytest.fixture(scope="session")
def _two() -> Iterator[labkit.Lab]:
    with start(2) as lab:
        yield lab


@pytest.fixture
def lab1(_one: labkit.Lab) -> labkit.Lab:
    """Return one rank, as an earlier test has left it, alive and idle."""
    return restored(_one)


@pytest.fixture
def lab2(_two: labkit.Lab) -> labkit.Lab:
    """Return two ranks, as an earlier test has left them, alive and idle."""
    return restored(_two)
