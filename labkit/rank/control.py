"""Answer the notebook's questions while this rank's main thread is busy.

The control channel of an engine has a thread of its own: it answers as long as that thread gets
the interpreter, which a rank that waits inside a collective leaves free.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..wire.connections import list_connections
from . import ipython_internals, memory, process_group, tracebacks, unblock
from .observe import blocked_call, sampler


def install(kernel: Any) -> None:
    """Let this engine answer labkit's requests on its control channel.

    ``labkit_survey``  what the main thread does, and the memory that is used
    ``labkit_watch``   answered when the main thread waits for another rank
    ``labkit_sample``  what it waits for, and what this rank has provided
    ``labkit_connections``, ``labkit_shut``  list and shut down connections
    ``labkit_wake``    send a byte to a rank that receives from any
    ``labkit_wait``    what the main thread waits for, whether it stands still or not
    """
    loop = ipython_internals.control_loop(kernel)
    if loop is None:
        return
    eyes = sampler.Looker(loop.call_later)

    def reply(stream: Any, ident: Any, parent: dict[str, Any], content: dict[str, Any]) -> None:
        kernel.session.send(stream, "labkit_reply", content, parent=parent, ident=ident)

    def watch(stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        eyes.watch(parent["content"]["known"], partial(reply, stream, ident, parent))

    def answers(function: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., None]:
        def handler(stream: Any, ident: Any, parent: dict[str, Any]) -> None:
            reply(stream, ident, parent, function(parent["content"]))

        return handler

    handlers = {
        "labkit_survey": answers(lambda asked: look()),
        "labkit_watch": watch,
        "labkit_sample": answers(lambda asked: eyes.sample()),
        "labkit_connections": answers(lambda asked: {"connections": list_connections()}),
        "labkit_shut": answers(
            lambda asked: {"count": unblock.shut(asked["pairs"]) + process_group.abort()}
        ),
        "labkit_wake": answers(lambda asked: {"count": unblock.wake(*asked["message"])}),
        "labkit_wait": answers(lambda asked: {"wait": blocked_call.describe(sampler.main_frame())}),
    }
    ipython_internals.answer_control(kernel, handlers)


def look() -> dict[str, Any]:
    """Say what the main thread does (idle, or busy at which line of which cell) and uses."""
    frame = sampler.main_frame()
    where, line = tracebacks.innermost(frame) or ("", "")
    begun = tracebacks.outermost(frame)
    if begun and begun.partition(",")[0] != where.partition(",")[0]:
        where = f"{begun} → {where}"  # it is in a function that an earlier cell has made
    answer = {"status": "ok", "busy": sampler.is_busy(), "where": where, "line": line}
    return answer | memory.read()
