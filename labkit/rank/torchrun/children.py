"""Raise an error in a process that a worker of torchrun has started and that waits for nobody.

torchrun's agent serves the store of its workers, and a variable tells them so. What a worker starts
(``mp.spawn``, ``mp.Process``) inherits it: with an address of their own, all these processes look
for a server at ``init_process_group``, for half an hour, and none of them is one.

A forked process has what was installed in the worker; a spawned one gets it with its ``Process``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ...base import times
from ...base.errors import LabError

#: What tells that torchrun's agent serves the store; torch reads it in each process.
AGENT = "TORCHELASTIC_USE_AGENT_STORE"

#: In a process that a worker has started: where.
_started_at: str | None = None


def install() -> None:
    """Begin to do so, in a worker that has imported torch."""
    os.register_at_fork(after_in_child=_note_fork)
    for kind in (context.SpawnProcess, context.ForkServerProcess):
        ForkingPickler.register(kind, _reduce)
    _check_stores()


def _note_fork() -> None:
    global _started_at
    _started_at = _place()


def _reduce(process: Any) -> tuple[Any, ...]:
    make, args, *state = process.__reduce_ex__(2)
    return (_arrive, (_place(), make, args), *state)


def _arrive(place: str, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Make the ``Process`` in the process that it stands for."""
    global _started_at
    _started_at = place
    call_after_torch(_check_stores)
    return make(*args)


def _place() -> str:
    """Name the line of the script that starts a process."""
    from .. import tracebacks

    where, line = tracebacks.innermost(sys._getframe()) or ("", "")
    return f"{where}: {line}" if line else where


def _check_stores() -> None:
    """Look, before torch does, whether somebody serves the store that it will connect with."""
    import torch.distributed as dist

    from ...guard import torch_internals as guard

    original = dist.TCPStore.__init__

    def tcp_store(self: Any, host_name: str, port: int, *args: Any, **named: Any) -> None:
        limit = named.get("timeout", args[2] if len(args) > 2 else None)
        # A store that the script makes itself may be served late, by any process.
        of_group = sys._getframe(1).f_globals.get("__name__") == "torch.distributed.rendezvous"
        inherited = _started_at is not None and os.environ.get(AGENT) == str(True)
        if of_group and inherited and not guard.is_server(args, named):
            _find(host_name, port, limit)
        original(self, host_name, port, *args, **named)

    dist.TCPStore.__init__ = tcp_store  # type: ignore[method-assign]


def _find(host: str, port: int, limit: timedelta | None) -> None:
    """Wait for a server; raise LabError if there is none for long."""
    from ..torch_internals import rendezvous

    longest = times.STORE_SERVED.seconds()
    if limit is not None and limit.total_seconds() < longest:  # torch itself says so soon
        return
    deadline = time.monotonic() + longest
    while time.monotonic() < deadline:
        if (line := rendezvous.connect((host, port))) is not None:
            line.close()
            return
        time.sleep(times.STORE_LOOK)
    at = f" ({_started_at})" if _started_at else ""
    raise LabError(
        f"A worker of torchrun has started this process{at}, which waits for a store at "
        f"{host}:{port} that nobody serves: under torchrun its agent serves the store, and no "
        "process of the script does. Take one launcher: torchrun without mp.spawn, or mp.spawn "
        "without torchrun."
    )


# -- when torch is there -------------------------------------------------------------------------


class _AfterTorch(MetaPathFinder):
    """Call a function when torch has been imported."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            original = loader.exec_module

            def exec_module(module: Any) -> None:
                del loader.exec_module
                original(module)
                self._function()

            loader.exec_module = exec_module
        return spec


def call_after_torch(function: Callable[[], None]) -> None:
    """Call a function when torch has been imported: now if it has, as in a process that is forked
    as ranks are."""
    if "torch" in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, _AfterTorch(function))
