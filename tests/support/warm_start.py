"""A pytest plugin: the labs of all tests start from one zygote. ``make test`` loads it.

Without it (``pytest tests/ranks/test_lab.py``) each lab imports torch anew, as in a plain script.
At the end it says which starts the zygote has refused, and why: those took as long. Some tests want
that; but what one test leaves in the process can cost all that come after it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from labkit.launch import zygote_client
from labkit.launch.zygote_client import Zygote
from labkit.tools import nbval_plugin

TESTS = Path(__file__).parents[1]
#: Folders whose tests start no lab.
NO_LABS = ("unit", "project")
#: Seconds for a zygote to import torch on a busy machine.
READY_SECONDS = 300
#: The session's zygote, which is there from before a test until after it.
zygotes: set[int] = set()
#: How often the zygote has said no, by what it said.
refusals: Counter[str] = Counter()
#: Under which name one of xdist's processes tells the first.
TOLD = "labkit_refusals"


class _Refusals(logging.Handler):
    """Count what the zygote has refused, where that is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()).startswith(zygote_client.REFUSED):
            refusals[text.removeprefix(zygote_client.REFUSED)] += 1


def pytest_configure(config: pytest.Config) -> None:
    """Listen to what is said of the zygote in this process."""
    logger = logging.getLogger(zygote_client.__name__)
    logger.setLevel(logging.INFO)
    logger.addHandler(_Refusals())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the zygote before the first test that could use it."""
    if not item.path.is_relative_to(TESTS) or _folder(item.path) in NO_LABS:
        return
    zygote = nbval_plugin.start_zygote(item.config)
    if zygote is not None and zygote.process.pid not in zygotes:
        zygotes.add(zygote.process.pid)
        wait_until_ready(zygote)


def wait_until_ready(zygote: Zygote) -> None:
    """Wait until a zygote has imported everything.

    A lab that starts before would import torch beside it, without what comes with torchvision: the
    first step of an optimizer imports that then on each of its ranks, which takes a busy machine as
    long as an exercise has time.
    """
    ready, deadline = zygote.folder.path / zygote_client.READY, time.monotonic() + READY_SECONDS
    while not ready.exists() and zygote.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def _folder(path: Path) -> str:
    return path.relative_to(TESTS).parts[0]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Notify the first process, in one of xdist's."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[TOLD] = dict(refusals)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear what one of xdist's processes tells."""
    refusals.update(getattr(node, "workeroutput", {}).get(TOLD, {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report which starts began with an import of torch although there was a zygote."""
    for text, count in refusals.most_common():
        terminalreporter.write_line(f"refused by the zygote: {count} × {text}")
