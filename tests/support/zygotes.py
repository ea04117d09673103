"""Have a zygote of a test's own, ready."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import pytest

from labkit.launch import zygote_line
from labkit.launch.zygote_owner import Zygote

#: Seconds for a zygote to import torch on a busy machine.
READY_SECONDS = 60


@contextlib.contextmanager
def started(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[Zygote]:
    """A zygote of our own, ready; the variables are those of its process."""
    monkeypatch.delenv(zygote_line.VARIABLE, raising=False)
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        zygote = Zygote.start()
    assert zygote is not None
    os.environ[zygote_line.VARIABLE] = str(zygote.folder.path)  # the patch has taken it away
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not (zygote.folder.path / zygote_line.READY).exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield zygote
    finally:
        zygote.close()
