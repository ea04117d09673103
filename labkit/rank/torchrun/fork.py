"""Let torchrun fork its workers from a process that has imported torch, instead of starting each.

torchrun starts a worker with ``subprocess.Popen``. Here that name means, in torchrun's module only,
a request to the process that has forked torchrun itself (``launch.torchrun_owner``); where that
cannot be asked, and for all other commands, it means what it did.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

from ...base import times
from ...wire import processes

#: The name in torchrun's module.
_POPEN = "Popen"


def install(place: str, module: str) -> None:
    """Begin to do so in this process, for workers that run a module.

    Parameters
    ----------
    place
        Where to ask.
    module
        The name of the module.
    """
    if not hasattr(subprocess_handler, _POPEN):  # another torch: workers are started as before
        return
    command = [sys.executable, "-u", "-m", module]

    def start(
        args: Sequence[str],
        env: Mapping[str, str],
        stdout: Any = None,
        stderr: Any = None,
        **more: Any,
    ) -> Any:
        if list(args[: len(command)]) == command:
            files = [_number(stdout, 1), _number(stderr, 2)]
            request = {"argv": list(args[len(command) :]), "environment": dict(env)}
            try:
                return processes.ask_to_fork(place, request, files, times.WORKER_FORKED.seconds())
            except (processes.Refused, OSError, EOFError):
                pass
        return subprocess.Popen(args=args, env=env, stdout=stdout, stderr=stderr, **more)

    setattr(subprocess_handler, _POPEN, start)


def _number(file: Any, otherwise: int) -> int:
    return otherwise if file is None else int(file.fileno())
