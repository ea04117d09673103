"""Keep ``tests/unit`` quick: no rank, no kernel, no pytest inside pytest."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pytest

from labkit.base import times
from labkit.launch import zygote_client

#: Modules and programs that are, or start, a rank or a kernel.
SLOW = {
    "labkit.launch.fork_server",
    "labkit.launch.controller",
    "labkit.launch.external_engine",
    "labkit.launch.zygote",
    "labkit.tools.validate",
    "ipyparallel",
    "ipyparallel.controller",
    "ipyparallel.engine",
    "ipykernel_launcher",
    "jupyter",
    "jupyterlab",
    "mpiexec",
    "nbconvert",
    "pytest",
    "sbatch",
}


@pytest.fixture(autouse=True)
def _no_rank_or_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that starts a rank or a kernel; a plain ``python -c`` is fine."""
    monkeypatch.delenv(zygote_client.VARIABLE, raising=False)  # which would start it in its stead
    start = subprocess.Popen.__init__

    def checked(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        words = [str(args)] if isinstance(args, str | bytes) else list(map(str, args))
        if slow := next((word for word in words if _is_slow(word)), None):
            pytest.fail(
                f"tests/unit starts no rank and no kernel, as this does: {slow}\n"
                "Such a test belongs to tests/ranks, tests/launchers or tests/tools."
            )
        start(self, args, *rest, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", checked)


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """Take back what a test leaves in the environment: the next file's processes would have it."""
    before = dict(os.environ)
    yield
    if before != os.environ:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True)
def _idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no bound be longer because a lab of this process has found the machine busy before."""
    monkeypatch.setattr(times, "pace", times.Pace())


def _is_slow(word: str) -> bool:
    return PurePath(word).name in SLOW or "labkit.start(" in word


@pytest.fixture(autouse=True)
def _no_process_left() -> None:
    """Take the place of the fixture for all tests: no rank is started here, and looking for what is
    left of one takes 10 ms a test."""
