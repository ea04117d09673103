"""Name what labkit uses of the insides of ipyparallel's controller, as its ``FEATURES`` list it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from hmac import compare_digest
from threading import Thread
from typing import Any

from ..wire.protocol import READY
from ..wire.state import Feature, is_defined
from .engine_internals import seen_by

#: What rests on which names of ipyparallel.
FEATURES = {
    "ids": Feature(
        ("Hub.all_completed", "Hub.by_ident", "Hub.monitor_handlers"),
        "each cell costs the controller nearly twice as much",
    ),
    "tasks": Feature(
        ("TaskScheduler.maybe_run", "TaskScheduler._unregister_engine"),
        "a task for a rank of a lab that has just started may be called impossible",
    ),
    "ready": Feature(
        ("Hub.handle_new_heart", "IPEngine.registrar"),
        "a start takes up to 0.2 s longer",
    ),
    "news": Feature(
        ("Hub.notifier", "Hub.query_handlers"),
        "a client may wait in vain for an engine that connects while it is about to listen",
    ),
    "sockets": Feature(
        ("IPController.construct_url",),
        "the controller listens on loopback instead of on unix sockets",
    ),
    "heart": Feature(
        ("IPController.heartmonitor_process",),
        "the controller has a second process, which measures heartbeats",
    ),
}
#: Parts of a message: its signature, its header, and that of the request it replies to.
SIGNATURE, HEADER, PARENT, SIGNED = 0, 1, 2, slice(1, 5)


def note_ids_only(hub: Any) -> None:
    """Make a hub without a database note the ids of requests, where it can be told.

    Original, it reads each request and each reply whole, with their dates, for its database. What
    is left without one is which requests an engine has waiting and done.

    Whatever is not as it should be goes to ipyparallel's own functions, which say what is wrong.
    """
    if not all(hasattr(hub, name.partition(".")[2]) for name in FEATURES["ids"].names):
        return
    if type(hub.db).__name__ != "NoDB":
        return
    handlers = hub.monitor_handlers
    original_request, original_reply = handlers.get(b"in"), handlers.get(b"out")
    if original_request is None or original_reply is None:
        return

    def note_request(identities: Sequence[bytes], parts: list[bytes]) -> None:
        engine = hub.by_ident.get(identities[0]) if len(identities) > 1 else None
        name = None if engine is None else _id_in(hub.session, parts, HEADER)
        if name is None:
            original_request(identities, parts)
            return
        hub.pending.add(name)
        hub.queues[engine].append(name)

    def note_reply(identities: Sequence[bytes], parts: list[bytes]) -> None:
        engine = hub.by_ident.get(identities[1]) if len(identities) > 1 else None
        name = None if engine is None else _id_in(hub.session, parts, PARENT)
        if name not in hub.pending:
            original_reply(identities, parts)
            return
        hub.pending.remove(name)
        hub.all_completed.add(name)
        hub.queues[engine].remove(name)
        hub.completed[engine].append(name)

    handlers |= {b"in": note_request, b"out": note_reply}


def _id_in(session: Any, parts: Sequence[bytes], part: int) -> str | None:
    """Return the message id in one part of a message that is signed as it should be."""
    if len(parts) < SIGNED.stop:
        return None
    if session.auth is not None and not compare_digest(
        parts[SIGNATURE], session.sign(parts[SIGNED])
    ):
        return None
    found: str | None = session.unpack(parts[part]).get("msg_id")
    return found


def patient(scheduler: type) -> type:
    """Return a task scheduler that waits for an engine that it has not heard of yet.

    The hub tells clients and the scheduler of engines one after the other. Original, a task for one
    that the client knows already is called impossible as soon as the scheduler knows another.
    """
    if not all(hasattr(scheduler, name) for name in ("maybe_run", "_unregister_engine")):
        return scheduler

    class Patient(scheduler):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.gone = set[bytes]()

        def maybe_run(self, job: Any) -> bool:
            if job.targets and job.targets.isdisjoint(self.gone.union(self.targets)):
                return False  # it is asked again when an engine comes
            ran: bool = super().maybe_run(job)
            return ran

        def _unregister_engine(self, uid: bytes) -> None:
            self.gone.add(uid)
            super()._unregister_engine(uid)

    return Patient


def use_unix_sockets(kind: type) -> None:
    """Make a class of controllers spell its addresses as engines and clients do.

    Original, they take a unix socket's number from a colon (``dir:7``), the controller puts it
    behind a dash (``dir-7``).
    """

    def construct_url(self: Any, kind: str, channel: str, index: Any = None) -> str:
        info = getattr(self, f"{kind}_info")
        port = info[channel] if index is None else info[channel][index]
        return f"{info['interface']}:{port}"

    kind.construct_url = construct_url  # type: ignore[attr-defined]


def has_unix_sockets() -> bool:
    """Return whether :func:`use_unix_sockets` works with the installed ipyparallel."""
    return is_defined("construct_url", "ipyparallel", "controller/app.py")


def measure_heartbeats_in_thread(controller: Any) -> None:
    """Make a controller's heart monitor be a thread; the original's is a child process."""
    process = getattr(controller, "heartmonitor_process", None)
    if process is not None:
        controller.heartmonitor_process = Thread(
            target=process.run, name="heartmonitor", daemon=True
        )


def without_pause(controller: type) -> AbstractContextManager[None]:
    """Make a controller be made without the quarter second that it waits for its database to be
    there: without one (``NoDB``), nothing is waited for."""
    return seen_by(controller.__module__, "time", sleep=lambda seconds: None)


def add_notice(
    hub: Any, kind: str, describe: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> None:
    """Make a hub tell all clients of each engine that leaves, before it forgets the engine.

    ``describe`` turns the content of the engine's message into that of the notice.
    """
    if not all(hasattr(hub, name) for name in ("unregister_engine", "query_handlers", "notifier")):
        return
    original = hub.unregister_engine

    def unregister_engine(ident: Any, message: dict[str, Any]) -> None:
        hub.session.send(hub.notifier, kind, content=describe(message["content"]))
        original(ident, message)

    hub.unregister_engine = unregister_engine
    hub.query_handlers["unregistration_request"] = unregister_engine


def hear_ready(hub: Any) -> None:
    """Make a hub take an engine for connected when it says so (:func:`say_ready`).

    Original, it is after the second heartbeat, which is not sooner than the period.
    """
    if not all(hasattr(hub, name) for name in ("handle_new_heart", "query_handlers")):
        return

    def ready(idents: Sequence[bytes], message: dict[str, Any]) -> None:
        hub.handle_new_heart(idents[0])

    hub.query_handlers[READY] = ready


def on_client(hub: Any, note: Callable[[str], None]) -> None:
    """Call ``note(session)`` for each client that connects to a hub."""
    handlers = getattr(hub, "query_handlers", {})
    original = handlers.get("connection_request")
    if original is None:
        return

    def connection_request(ident: Any, message: dict[str, Any]) -> None:
        note(message["header"]["session"])
        original(ident, message)

    handlers["connection_request"] = connection_request


def with_subscribers(controller: type) -> AbstractContextManager[None]:
    """Make a controller be made whose hub sees who listens to its news (:func:`hold_news`)."""
    import zmq

    return seen_by(controller.__module__, "zmq", PUB=zmq.XPUB)


def hold_news(hub: Any, seconds: float) -> None:
    """Make a hub keep its news until the client listens that has just asked which engines are
    there.

    Otherwise a client misses the engine that connects between the hub's answer and the client's
    subscription, and waits for it forever. One that never listens is waited for so many
    seconds."""
    import zmq

    handlers, news = getattr(hub, "query_handlers", {}), getattr(hub, "notifier", None)
    original = handlers.get("connection_request")
    if original is None or news is None or news.socket.type != zmq.XPUB:
        return
    news.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
    send, kept = news.send_multipart, list[Callable[[], None]]()
    asked, coming = set[str](), list[object]()

    def connection_request(ident: Any, message: dict[str, Any]) -> None:
        original(ident, message)
        if (client := message["header"]["session"]) not in asked:
            asked.add(client)
            coming.append(token := object())
            hub.loop.call_later(seconds, arrived, token)

    def arrived(token: object) -> None:
        if token in coming:
            coming.remove(token)
        while kept and not coming:
            kept.pop(0)()

    def subscribed(parts: list[bytes]) -> None:
        if parts[0][:1] == b"\x01" and coming:
            arrived(coming[0])

    def send_multipart(*args: Any, **kwargs: Any) -> None:
        if coming:
            kept.append(partial(send, *args, **kwargs))
        else:
            send(*args, **kwargs)

    news.send_multipart = send_multipart
    news.on_recv(subscribed)
    handlers["connection_request"] = connection_request
