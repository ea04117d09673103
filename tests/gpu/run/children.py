"""Run a program within limits, with what it says in a file; leave nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

import psutil

from tests.bench.child import TOKEN, end_marked, marked
from tests.support.conda_versions import ROOT

#: Seconds after Ctrl-C, and then after SIGTERM, before the next one.
GRACE = (8.0, 3.0)
#: Seconds in which the processes that a program has started are gone after it.
TIDY = 3.0


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    seconds: float
    by: Literal["itself", "time", "silence", "stop"]  #: what ended it
    left: tuple[str, ...]  #: the commands of processes that it left behind, which were ended


def run(
    command: Sequence[str],
    *,
    seconds: float,
    log: Path,
    env: Mapping[str, str],
    silent: Callable[[], bool] = lambda: False,
    stop: Event | None = None,
    folder: Path = ROOT,
) -> Ended:
    """Run a program.

    Parameters
    ----------
    command
        The program and its arguments.
    seconds
        How long it may take. Then it gets a Ctrl-C, which pytest and ``labkit run`` answer with
        what they have so far; then it is ended.
    log
        Gets what it writes; lines are added.
    env
        Its variables.
    silent
        Tells, asked again and again, whether it has been heard of for too long.
    stop
        When this is set, it is ended at once.
    folder
        Where it runs: the project's.
    """
    token = uuid.uuid4().hex
    began = time.monotonic()
    by: Literal["itself", "time", "silence", "stop"] = "itself"
    with open(log, "ab") as file:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**env, TOKEN: token},
            start_new_session=True,
        )
        try:
            while child.poll() is None:
                if stop is not None and stop.is_set():
                    by = "stop"
                elif time.monotonic() - began > seconds:
                    by = "time"
                elif silent():
                    by = "silence"
                else:
                    time.sleep(0.1)
                    continue
                _end(child)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            left = _left(token)
            end_marked(token)
    return Ended(child.returncode, time.monotonic() - began, by, left)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a program: gently, firmly, at last."""
    for number, wait in zip((signal.SIGINT, signal.SIGTERM), GRACE, strict=True):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait)
            return
    child.kill()
    child.wait()


def _left(token: str) -> tuple[str, ...]:
    """Name what is still there when there was time to tidy up."""
    _, alive = psutil.wait_procs(marked(token), TIDY)
    names = []
    for process in alive:
        with contextlib.suppress(psutil.Error):
            names.append(" ".join(process.cmdline())[:200])
    return tuple(names)
