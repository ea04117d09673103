"""Be a program of ipyparallel in a process of a lab: what controller and engines have in common."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ipyparallel.apps.baseapp import BaseParallelApplication
from traitlets import default

from .import_path import WORKING_FOLDER


class LabApplication(BaseParallelApplication):
    """A program of ipyparallel that stays where it is, and imports from where things are
    installed."""

    @default("work_dir")
    def _default_work_dir(self) -> str:
        """Stay here: the original's is where ipyparallel was imported, which a zygote may have
        done."""
        return os.getcwd()

    def initialize(self, argv: list[str] | None = None) -> None:
        with closed_path():
            super().initialize(argv)


def skip_unwritten(log: logging.Logger) -> None:
    """Make a logger drop at once what none of its handlers takes.

    traitlets sets an application's logger to DEBUG and its handler to the level that was asked for:
    each request of an engine makes ten records for nothing.
    """
    if log.handlers and not log.propagate:
        log.setLevel(max(log.level, min(handler.level for handler in log.handlers)))


class _Closed(list[str]):
    """A path that does not take the working folder."""

    def insert(self, index: Any, entry: str) -> None:
        if entry != WORKING_FOLDER:
            super().insert(index, entry)


@contextmanager
def closed_path() -> Iterator[None]:
    """Keep the working folder off the path meanwhile.

    ipyparallel's controllers and engines do so twice while they start, before all else.
    """
    path = sys.path
    sys.path = _Closed(path)
    try:
        yield
    finally:
        path[:] = sys.path
        sys.path = path
