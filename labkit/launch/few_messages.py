"""Send cells and calls to ranks with fewer messages than ipyparallel does, and in one go.

Of the insides of ipyparallel this names what :data:`FEATURE` lists, as
``launch.ipyparallel_internals`` does for all the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any

from ..wire.protocol import CELL_TIME, COLLECTIVES, QUIET
from ..wire.state import Feature

#: What rests on which names of ipyparallel.
FEATURE = Feature(
    (
        "Client._build_targets",
        "Client._io_loop",
        "Client._mux_stream",
        "Client._output_futures",
        "Client._queue_handlers",
    ),
    "each cell costs the notebook three more messages per rank, each other request two",
)
#: ZeroMQ's flag for what can be sent; this module does not import it.
POLLOUT = 2


def execute(client: Any, engines: Sequence[int], code: str, label: str | None = None) -> Any:
    """Run code on some engines, as ``view.execute(code, silent=False, block=False)`` of a direct
    view does, with as few messages as labkit's ranks can do with (``protocol.QUIET``).

    Returns
    -------
    AsyncResult
        As for any other cell, with all its output.
    """
    if not _hears_quiet(client):
        view = client.direct_view(engines)
        view.label = label
        return view.execute(code, silent=False, block=False)
    identities, engines = client._build_targets(engines)
    metadata = {"label": label, QUIET: True}
    futures = []
    with _sent_together(client):
        for identity, engine in zip(identities, engines, strict=True):
            future = client.send_execute_request(
                client._mux_stream, code, silent=False, ident=identity, metadata=metadata
            )
            # What the engine would have told of it.
            future.output.metadata.update(
                engine_uuid=identity.decode(), engine_id=engine, execute_input=code
            )
            futures.append(future)
    return _result(client, futures, "execute", engines)


def apply(
    client: Any,
    function: Callable[..., Any],
    arguments: Mapping[int, tuple[Any, ...]],
    label: str | None = None,
) -> Any:
    """Call a function on some engines, each with arguments of its own, as ``view.apply_async`` of
    direct views does, with as few messages as labkit's ranks can do with.

    Parameters
    ----------
    arguments
        Engine -> its arguments; at least one.

    Returns
    -------
    AsyncResult
        Of all engines, in their order.
    """
    name, engines, futures = function.__name__, list(arguments), []
    if not _hears_quiet(client):
        for engine, given in arguments.items():
            view = client.direct_view([engine])
            view.label = label
            futures += view.apply_async(function, *given)._children
        return _result(client, futures, name, engines)
    identities = client._build_targets(engines)[0]
    metadata = {"label": label, QUIET: True}
    with _sent_together(client):
        for identity, (engine, given) in zip(identities, arguments.items(), strict=True):
            future = client.send_apply_request(
                client._mux_stream, function, given, ident=identity, metadata=metadata
            )
            future.output.metadata.update(engine_uuid=identity.decode(), engine_id=engine)
            futures.append(future)
    return _result(client, futures, name, engines)


def _result(client: Any, futures: list[Any], name: str, engines: Sequence[int]) -> Any:
    kind = sys.modules["ipyparallel"].AsyncResult
    return kind(client, futures, fname=name, targets=engines, owner=True)


def _hears_quiet(client: Any) -> bool:
    """Make a client take it from a reply that no output comes; return whether it can."""
    if not all(hasattr(client, name.partition(".")[2]) for name in FEATURE.names):
        return False
    for name in ("execute_reply", "apply_reply"):
        _hear(client, name)
    return True


def _hear(client: Any, name: str) -> None:
    """Make a client take it from one kind of replies that no output comes."""
    handlers = client._queue_handlers
    original = handlers.get(name)
    if original is None or hasattr(original, "hears_quiet"):
        return

    def handle(message: dict[str, Any]) -> None:
        request = message["parent_header"].get("msg_id")
        output = client._output_futures.get(request)
        _take_start(message["metadata"], client.metadata[request])
        for key in (COLLECTIVES, CELL_TIME):
            if (told := message["content"].get(key)) is not None:
                client.metadata[request].update({key: told})
        original(message)
        if message["content"].get(QUIET) and output is not None and not output.done():
            output.set_result(None)

    handle.hears_quiet = True  # type: ignore[attr-defined]
    handlers[name] = handle


def collectives_of(reply: Any) -> object:
    """Return what a reply says of the collectives that the rank has issued, None if nothing."""
    return _told(reply, COLLECTIVES)


def cell_time_of(reply: Any) -> object:
    """Return what a reply says of how long its cell took, None if nothing."""
    return _told(reply, CELL_TIME)


def _told(reply: Any, key: str) -> object:
    return getattr(getattr(reply, "output", None), "metadata", {}).get(key)


def _take_start(told: dict[str, Any], known: dict[str, Any]) -> None:
    """Record when a cell began, from its reply: ipyparallel's own way to read a date takes longer
    than all the rest of the reply."""
    try:
        began = datetime.fromisoformat(told["started"])
    except (KeyError, TypeError, ValueError):
        return
    if began.tzinfo is not None:
        known["started"] = began
        del told["started"]


class _Collected:
    """Stands for the loop of a client's thread while several requests are made."""

    def __init__(self, loop: Any) -> None:
        self._loop, self._lock = loop, Lock()
        self._calls: list[Callable[[], object]] | None = []

    def add_callback(self, call: Callable[..., object], *args: Any, **named: Any) -> None:
        with self._lock:
            if self._calls is not None:
                self._calls.append(partial(call, *args, **named))
                return
        self._loop.add_callback(call, *args, **named)  # of another thread, which came too late

    def hand_over(self, stream: Any) -> None:
        """Give all of it to the loop in one piece, and all that comes later as it comes."""

        def run(calls: Sequence[Callable[[], object]]) -> None:
            try:
                for call in calls:
                    call()
            finally:
                # Else one each time that the loop has looked at everything else.
                stream.flush(POLLOUT)

        with self._lock:
            calls, self._calls = self._calls or [], None
            self._loop.add_callback(run, calls)


@contextmanager
def _sent_together(client: Any) -> Iterator[None]:
    """Make a client's thread be woken once for all requests that are made inside."""
    loop = client._io_loop
    client._io_loop = collected = _Collected(loop)
    try:
        yield
    finally:
        client._io_loop = loop
        collected.hand_over(client._mux_stream)
