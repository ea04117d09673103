"""Answer the notebook's questions while this rank's main thread is busy.

The control channel of an engine has a thread of its own: it answers as long as that thread gets
the interpreter, which a rank that waits inside a collective leaves free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..wire.connections import list_connections
from ..wire.encoding import ProtocolError, decode, encode
from ..wire.requests import (
    REFUSED,
    REPLY,
    Activity,
    AskActivity,
    AskBusy,
    AskConnections,
    AskCurves,
    AskSample,
    AskWait,
    AskWatch,
    Busy,
    Connections,
    Count,
    GiveInput,
    Handler,
    Shut,
    Waiting,
    Wake,
)
from . import (
    curves,
    ipython_internals,
    memory,
    spare_files,
    steady,
    tracebacks,
    unblock,
    user_input,
)
from .observe import blocked_call, ended_groups, sampler


def install(kernel: Any) -> None:
    """Make this engine answer labkit's requests on its control channel."""
    loop = ipython_internals.control_loop(kernel)
    if loop is None:
        return
    # Tornado's own call_later adds half the time of a look to it.
    own = getattr(loop, "asyncio_loop", loop)
    steady.keep(own)
    later = own.call_later
    ipython_internals.open_output(kernel)
    answered = handlers(sampler.Sampler(later))
    ipython_internals.answer_control(
        kernel, {h.question.request: _receiver(kernel.session, h) for h in answered}
    )


def handlers(own: sampler.Sampler) -> list[Handler]:
    """List how this rank answers each question."""
    return [
        AskBusy.answered_by(lambda asked: Busy(sampler.is_busy())),
        AskActivity.answered_by(lambda asked: look()),
        AskWatch.answered_later(lambda asked, tell: own.watch(asked.known, tell)),
        AskSample.answered_by(lambda asked: own.sample()),
        AskConnections.answered_by(lambda asked: _connections()),
        AskCurves.answered_by(curves.read),
        Shut.answered_by(lambda asked: Count(unblock.free(asked.pairs))),
        Wake.answered_by(
            lambda asked: Count(unblock.unblock_receive(asked.group, asked.peer, asked.tag))
        ),
        AskWait.answered_by(lambda asked: Waiting(blocked_call.describe(sampler.main_frame()))),
        GiveInput.answered_by(lambda given: Count(user_input.answer(given))),
    ]


def _receiver(session: Any, handler: Handler) -> Callable[[Any, Any, dict[str, Any]], None]:
    """Return what takes a question off the channel. One that cannot be read is refused."""

    def receive(stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        def reply(content: dict[str, Any]) -> None:
            session.send(stream, REPLY, content, parent=parent, ident=ident)

        try:
            question = decode(handler.question, parent["content"])
        except ProtocolError as error:
            reply({REFUSED: str(error)})
            return
        with spare_files.lent_if_full():
            handler.start(question, lambda answer: reply(encode(answer)))

    return receive


def look() -> Activity:
    """Return what the main thread does (idle, or busy at which line of which cell) and uses."""
    frame = sampler.main_frame()
    where, line = tracebacks.innermost(frame) or ("", "")
    begun = tracebacks.outermost(frame)
    if begun and begun.partition(",")[0] != where.partition(",")[0]:
        where = f"{begun} → {where}"  # it is in a function that an earlier cell has made
    asks = user_input.prompt()
    return Activity(
        sampler.is_busy(), where, line, memory.used(), memory.gpu(), asks, ended_groups.left
    )


def _connections() -> Connections:
    return Connections(tuple((c.own, c.other) for c in list_connections()))
