"""A pytest plugin: the tests of a file run in one process, one after the other (``--dist
loadgroup``), for they share a lab. ``make test`` loads it.

``test_answers`` is too long for that: its tests are together with those of the same notebook.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = str(item.path)
        if item.path.name == "test_answers.py" and isinstance(item, pytest.Function):
            group += f" {item.callspec.params['name'][:2]}"
        item.add_marker(pytest.mark.xdist_group(group))
