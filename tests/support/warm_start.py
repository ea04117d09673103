"""A pytest plugin: the labs of all tests start from one zygote. ``make test`` loads it.

Without it (``pytest tests/ranks/test_lab.py``) each lab imports torch anew, as in a plain script.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.tools import nbval_plugin

TESTS = Path(__file__).parents[1]
#: Folders whose tests start no lab.
NO_LABS = ("unit", "project")
#: The session's zygote, which is there from before a test until after it.
zygotes: set[int] = set()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the zygote before the first test that could use it."""
    if not item.path.is_relative_to(TESTS) or _folder(item.path) in NO_LABS:
        return
    if zygote := nbval_plugin.start_zygote(item.config):
        zygotes.add(zygote.process.pid)


def _folder(path: Path) -> str:
    return path.relative_to(TESTS).parts[0]
