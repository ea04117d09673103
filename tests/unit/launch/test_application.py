"""Which records a program of ipyparallel makes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from labkit.launch.application import skip_unwritten


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger as traitlets makes it."""
    log = logging.Logger("program", logging.DEBUG)
    log.propagate = False
    yield log
    for handler in log.handlers:
        handler.close()


def test_records_that_no_handler_takes_are_not_made(log: logging.Logger) -> None:
    for level in (logging.WARNING, logging.INFO):
        log.addHandler(logging.NullHandler(level))
    skip_unwritten(log)
    assert log.isEnabledFor(logging.INFO)
    assert not log.isEnabledFor(logging.DEBUG)


def test_a_logger_whose_records_go_elsewhere_is_left_alone(log: logging.Logger) -> None:
    skip_unwritten(log)
    assert log.level == logging.DEBUG
    log.addHandler(logging.NullHandler(logging.WARNING))
    log.propagate = True
    skip_unwritten(log)
    assert log.level == logging.DEBUG
