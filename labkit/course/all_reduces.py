"""Note the all-reduces that an answer starts, and who waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist


class Notes:
    """What was started and waited for."""

    def __init__(self) -> None:
        self.bytes: list[int] = []
        self.waits = 0


class _Work:
    """Stand in for a handle, and note that somebody waits for it."""

    def __init__(self, work: Any, notes: Notes) -> None:
        self._work, self._notes = work, notes

    def wait(self, *args: Any) -> Any:
        self._notes.waits += 1
        return self._work.wait(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


@contextmanager
def noted() -> Iterator[Notes]:
    """Note the all-reduces that are called from here on, and who waits for them."""
    notes, stock = Notes(), dist.all_reduce

    def all_reduce(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
        notes.bytes.append(tensor.nbytes)
        work = stock(tensor, *args, **named)
        if work is None:
            notes.waits += 1
            return None
        return _Work(work, notes)

    with patch.object(dist, "all_reduce", all_reduce):
        yield notes
