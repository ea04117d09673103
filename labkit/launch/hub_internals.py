"""Let the controller keep of a request what somebody can ask it for, and let a task wait.

ipyparallel's hub reads each request and each reply whole, with their dates, for its database. A
lab has none (``NoDB``): what is left is which requests an engine has waiting and done.
"""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest
from typing import Any

from ..wire.features import Feature

#: What rests on which names of ipyparallel.
FEATURE = Feature(
    ("Hub.all_completed", "Hub.by_ident", "Hub.monitor_handlers"),
    "each cell costs the controller nearly twice as much",
)
TASKS = Feature(
    ("TaskScheduler.maybe_run", "TaskScheduler._unregister_engine"),
    "a task for a rank of a lab that has just started may be called impossible",
)
#: Parts of a message: its signature, its header, and that of the request it replies to.
SIGNATURE, HEADER, PARENT, SIGNED = 0, 1, 2, slice(1, 5)


def note_ids_only(hub: Any) -> None:
    """Let a hub without a database note the ids of requests, where it can be told.

    Whatever is not as it should be goes to ipyparallel's own functions, which say what is wrong.
    """
    if not all(hasattr(hub, name.partition(".")[2]) for name in FEATURE.names):
        return
    if type(hub.db).__name__ != "NoDB":
        return
    handlers = hub.monitor_handlers
    stock_request, stock_reply = handlers.get(b"in"), handlers.get(b"out")
    if stock_request is None or stock_reply is None:
        return

    def note_request(identities: Sequence[bytes], parts: list[bytes]) -> None:
        engine = hub.by_ident.get(identities[0]) if len(identities) > 1 else None
        name = None if engine is None else _id_in(hub.session, parts, HEADER)
        if name is None:
            stock_request(identities, parts)
            return
        hub.pending.add(name)
        hub.queues[engine].append(name)

    def note_reply(identities: Sequence[bytes], parts: list[bytes]) -> None:
        engine = hub.by_ident.get(identities[1]) if len(identities) > 1 else None
        name = None if engine is None else _id_in(hub.session, parts, PARENT)
        if name not in hub.pending:
            stock_reply(identities, parts)
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

    The hub tells clients and the scheduler of engines one after the other. Stock, a task for one
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
