"""Start torchrun as a notebook's kernel does: what it runs, in which folder, and who ends it.

The command is torchrun's own; ``labkit.rank.torchrun.agent`` reads it with torchrun's parser. Where
somebody keeps a process that has imported torch (``zygote``), torchrun and its workers are forked
from there; else they are started as anywhere (``torchrun_owner``).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base import times
from ..wire.protocol import CELL, LOGS, REPORT, SCRIPT
from . import import_path, torchrun_owner, zygote_client
from .private_folder import PrivateFolder, sweep
from .zygote_client import Process


@dataclass(frozen=True)
class Report:
    """How torchrun has ended."""

    #: Why torchrun did not take its command line, "" if it did.
    refused: str = ""
    #: Exit codes of the workers that failed in the last attempt, by rank; negative for a signal.
    failures: Mapping[int, int] = field(default_factory=dict)
    #: The last lines that torchrun itself wrote, if it failed with no failed worker.
    error: str = ""
    code: int = 0  #: of torchrun; negative for a signal
    #: Whether the command line says itself where the workers' output goes.
    own_way: bool = False


class Torchrun:
    """One run of torchrun. Made by :meth:`start`."""

    def __init__(self, folder: PrivateFolder, process: Process, line: socket.socket) -> None:
        self._folder = folder
        self._process = process
        self._line = line

    @classmethod
    def start(
        cls,
        folder: PrivateFolder,
        words: Sequence[str],
        script: str | None,
        cell: str,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Torchrun:
        """Start torchrun; returns at once.

        Parameters
        ----------
        folder
            For all that the run needs.
        words
            torchrun's command line.
        script
            The text of the script, for a command line that has no script in it. A word ``--``
            stands before the script's own arguments then.
        cell
            The name of the cell that is run.
        variables
            For the environment of torchrun and its workers, beside those of this process.
        """
        path = folder.path
        (path / LOGS).mkdir()
        if script is not None:
            (path / SCRIPT).write_text(script, encoding="utf-8")
        environment = {**_environment(), **variables, CELL: cell}
        agent = [sys.executable, "-P", "-m", torchrun_owner.AGENT, str(path), *words]
        command = [torchrun_owner.__name__, str(path), *agent]

        def begin(*, alone: bool = False) -> tuple[Process, socket.socket]:
            argv, log = [str(path), *words], path / torchrun_owner.LOG
            kind = zygote_client.TORCHRUN
            return zygote_client.start(kind, argv, command, environment, log, alone=alone)

        try:
            return cls(folder, *begin())
        except TimeoutError:  # what may still begin finds its line closed
            return cls(folder, *begin(alone=True))

    @property
    def path(self) -> Path:
        """The private folder."""
        return self._folder.path

    def has_ended(self) -> bool:
        """Return whether torchrun and all that it started are gone."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End it with all its workers, if it runs, and wait for it. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._line.send(b".")  # this process lives, and will remove the folder
        self._line.close()
        try:
            self._process.wait(times.TORCHRUN_ENDED.seconds())
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def report(self) -> Report:
        """Return how it has ended."""
        code = self._process.wait()
        found: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.path / REPORT).read_text())
        failures = {int(rank): code for rank, code in found.get("failures", {}).items()}
        error = "" if failures or not code else self._last_words()
        own_way = bool(found.get("own_way"))
        return Report(found.get("refused", ""), failures, error, code, own_way)

    def _last_words(self, lines: int = 12) -> str:
        for name in (torchrun_owner.STDERR, torchrun_owner.LOG):
            with contextlib.suppress(OSError):
                text = (self.path / name).read_text("utf-8", errors="replace").rstrip()
                if text:
                    return "\n".join(text.splitlines()[-lines:])
        return ""


def make_folder() -> PrivateFolder:
    """Make the private folder of a run.

    Raises
    ------
    StartError
        If it cannot be made, or ``PYTHONPATH`` names a folder of others.
    """
    import_path.check()
    sweep()
    return PrivateFolder()


def _environment() -> dict[str, str]:
    """Return the variables of a program that somebody starts in a terminal."""
    environment = dict(os.environ)
    if environment.get("MPLBACKEND", "").startswith("module://matplotlib_inline"):
        del environment["MPLBACKEND"]  # of the kernel, which shows figures in the notebook
    return environment
