"""Say what outside the ranks may still give work to one that has none."""

from __future__ import annotations

import threading
from typing import Any

from ..launch import ipyparallel_internals
from ..wire import python_threads

THREAD = "a thread of this notebook is alive, which may send something to a rank: {}"
TASK = "a task of lab.client is under way, which may go to any rank"


def doubts(client: Any) -> tuple[str, ...]:
    """Say what may still send something to a rank: threads of the notebook, tasks of its views."""
    found = [THREAD.format(seen.name) for seen in python_threads.look({threading.get_ident()})]
    if ipyparallel_internals.has_tasks(client):
        found.append(TASK)
    return tuple(found)
