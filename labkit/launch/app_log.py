"""Let the programs of ipyparallel not make the log records that nobody writes."""

from __future__ import annotations

import logging


def skip_unwritten(log: logging.Logger) -> None:
    """Let a logger drop at once what none of its handlers takes.

    traitlets sets an application's logger to DEBUG and its handler to the level that was asked for:
    each request of an engine makes ten records for nothing.
    """
    if log.handlers and not log.propagate:
        log.setLevel(max(log.level, min(handler.level for handler in log.handlers)))
