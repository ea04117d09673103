"""Have a zygote of a test's own, ready."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from labkit.launch import zygote_client
from labkit.launch.zygote_client import Zygote
from tests.support.warm_start import wait_until_ready


@contextlib.contextmanager
def started(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[Zygote]:
    """A zygote of our own, ready; the variables are those of its process."""
    monkeypatch.delenv(zygote_client.VARIABLE, raising=False)
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        zygote = Zygote.start()
    assert zygote is not None
    os.environ[zygote_client.VARIABLE] = str(zygote.folder.path)  # the patch has taken it away
    try:
        wait_until_ready(zygote)
        assert (zygote.folder.path / zygote_client.READY).exists()
        yield zygote
    finally:
        zygote.close()
