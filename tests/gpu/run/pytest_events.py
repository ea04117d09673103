"""Write down what pytest does while it does it: a plugin, ``-p tests.gpu.run.pytest_events``.

What pytest itself reports comes at its end. Of a run that hangs, this file says which tests there
are, which have ended and which one was under way.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-to", type=Path, help="where every event goes, a line of JSON each")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--record-to")
    if path is not None:
        config.pluginmanager.register(_Record(path), "gpu-record")


class _Record:
    def __init__(self, path: Path) -> None:
        self.path = path

    def _write(self, **event: Any) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(event) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(collected=[item.nodeid for item in session.items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(begins=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        why = ""
        if report.skipped and isinstance(report.longrepr, tuple):
            why = report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message if crash else str(report.longrepr)
        self._write(
            test=report.nodeid,
            phase=report.when,
            outcome=report.outcome,
            seconds=round(report.duration, 2),
            why=why[:2000],
            observed=dict(report.user_properties).get("observed"),
        )

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(ended=nodeid)
