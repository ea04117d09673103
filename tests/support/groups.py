"""A pytest plugin: the tests of a file run in one process, one after the other (``--dist
loadgroup``), for they share a lab. ``make test`` loads it.

``tests/course/test_answers.py`` is too long for that: its tests are together with those of the same
notebook.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = str(item.path)
        if group.endswith("tests/course/test_answers.py"):
            group += f" {item.callspec.params['name'][:2]}"  # type: ignore[attr-defined]
        item.add_marker(pytest.mark.xdist_group(group))
