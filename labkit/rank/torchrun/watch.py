"""Let the notebook ask a worker of torchrun what it waits for, as it asks the ranks of a lab.

Once the script has imported torch, calls are recorded as on a rank, and a thread answers the
notebook's questions, by a Unix socket in the private folder of the run. A script that does
without torch meets none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from typing import Any

from ...base import times
from ...wire.encoding import ProtocolError, decode, encode
from ...wire.protocol import Hello
from ...wire.requests import REFUSED, Handler
from . import children
from .training import Teller

_thread: threading.Thread | None = None
_runner: asyncio.Runner | None = None


def begin_with_torch(path: str, script: str, telling: Teller | None = None) -> None:
    """Begin to answer at a socket when torch has been imported.

    ``script`` is the file name of the code whose lines are told; ``telling`` begins then, too.
    """
    children.call_after_torch(lambda: begin(path, script, telling))


def begin(path: str, script: str, telling: Teller | None = None) -> None:
    """Record calls, and answer the notebook; where that cannot be, run on without it."""
    with contextlib.suppress(Exception):
        if telling is not None:
            telling.listen()
        from ...guard import torch_internals as guard
        from .. import activity, tracebacks
        from ..observe import p2p_record
        from ..torch_internals import names, reducers

        names.check()
        reducers.install()
        guard.install_loopback()  # before what notes its waits, which is called first
        p2p_record.install()
        children.install()
        tracebacks.scripts.add(script)
        activity.in_call = True
        _start(path)


def _start(path: str) -> None:
    global _thread, _runner
    _runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    _thread = threading.Thread(target=_run, args=(path,), name="labkit watch", daemon=True)
    _runner.get_loop()  # made here, so that it can be ended from now on
    _thread.start()


def _run(path: str) -> None:
    assert _runner is not None
    # Of the notebook that has gone; of a loop that is told to end.
    with _runner, contextlib.suppress(OSError, RuntimeError):
        _runner.run(_serve(path))


def end() -> None:
    """Answer no more: Python ends threads where they stand when it ends, and torch's C++ aborts
    the process if one stands there."""
    if _thread is not None and _runner is not None and _thread.is_alive():
        with contextlib.suppress(RuntimeError):  # it has ended
            loop = _runner.get_loop()
            loop.call_soon_threadsafe(loop.stop)
        _thread.join(times.WORKER_LOOK_ENDED.seconds())


async def _serve(path: str) -> None:
    from .. import control
    from ..observe.sampler import Sampler

    reader, writer = await asyncio.open_unix_connection(path)
    names = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    rank, size, attempt = (int(os.environ.get(name, "0")) for name in names)
    _write(writer, encode(Hello(rank, size, attempt, os.getpid())))
    own = Sampler(asyncio.get_running_loop().call_later)
    handlers = {str(h.question.request): h for h in control.handlers(own)}
    async for line in reader:
        message = json.loads(line)
        _reply(writer, message["id"], handlers[message["request"]], message["content"])


def _reply(writer: asyncio.StreamWriter, number: int, handler: Handler, content: Any) -> None:
    def reply(content: dict[str, Any]) -> None:
        _write(writer, {"id": number, "content": content})

    try:
        question = decode(handler.question, content)
    except ProtocolError as error:
        reply({REFUSED: str(error)})
        return
    handler.start(question, lambda answer: reply(encode(answer)))


def _write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
