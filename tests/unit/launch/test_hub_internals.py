"""What the controller notes of requests, and when a task is impossible."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from ipyparallel.controller.app import IPController
from ipyparallel.controller.dictdb import DictDB, NoDB
from ipyparallel.controller.task_scheduler import TaskScheduler
from jupyter_client.session import Session

from labkit.launch.controller import LabController
from labkit.launch.hub_internals import note_ids_only, patient

SESSION = Session(key=b"key")
#: Identities of a message to an engine, and of one from it.
TO, FROM = [b"engine", b"client"], [b"client", b"engine"]


class Hub(SimpleNamespace):
    """The parts of a hub that know of requests; ``own`` has what its own functions were given."""

    def __init__(self, **changed: Any) -> None:
        own: list[str] = []
        super().__init__(
            own=own, db=NoDB(), session=SESSION, by_ident={b"engine": 5},
            pending=set(), all_completed=set(), queues={5: []}, completed={5: []},
            monitor_handlers={
                b"in": lambda identities, parts: own.append("request"),
                b"out": lambda identities, parts: own.append("reply"),
            },
        )  # fmt: skip
        vars(self).update(changed)
        note_ids_only(self)

    def hear(self, topic: bytes, identities: list[bytes], parts: list[bytes]) -> None:
        self.monitor_handlers[topic](identities, parts)


def request() -> tuple[str, list[bytes], list[bytes]]:
    """Return an id, and the parts of a request and of its reply."""
    asked = SESSION.msg("execute_request", {"code": "1"})
    reply = SESSION.msg("execute_reply", {"status": "ok"}, parent=asked)
    return asked["header"]["msg_id"], *(SESSION.serialize(m)[1:] for m in (asked, reply))


def test_a_request_waits_until_its_reply_comes():
    hub = Hub()
    name, asked, replied = request()
    hub.hear(b"in", TO, asked)
    assert (hub.pending, hub.queues) == ({name}, {5: [name]})
    hub.hear(b"out", FROM, replied)
    assert (hub.pending, hub.queues) == (set(), {5: []})
    assert (hub.all_completed, hub.completed) == ({name}, {5: [name]})
    assert hub.own == []


def forged(parts: list[bytes]) -> list[bytes]:
    return [Session(key=b"other").sign(parts[1:5]), *parts[1:]]


ODD = {
    "another key": (TO, forged),
    "cut": (TO, lambda parts: parts[:3]),
    "an engine that nobody knows": ([b"gone", b"client"], list),
    "nobody": ([b"engine"], list),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_left_to_the_hub(name):
    identities, change = ODD[name]
    hub = Hub()
    _, asked, replied = request()
    hub.hear(b"in", identities, change(asked))
    hub.hear(b"out", identities[::-1], change(replied))
    assert hub.own == ["request", "reply"]
    assert (hub.pending, hub.queues, hub.completed) == (set(), {5: []}, {5: []})


def test_a_reply_that_nobody_waits_for_is_left_to_the_hub():
    hub = Hub()
    hub.hear(b"out", FROM, request()[2])
    assert hub.own == ["reply"]


def test_a_hub_with_a_database_keeps_all_of_it():
    hub = Hub(db=DictDB())
    hub.hear(b"in", TO, request()[1])
    assert hub.own == ["request"]


def test_another_hub_is_left_as_it_is():
    hub = Hub(monitor_handlers={})
    assert hub.monitor_handlers == {}
    hub = SimpleNamespace(db=NoDB())
    note_ids_only(hub)
    assert vars(hub).keys() == {"db"}


class Sent(SimpleNamespace):
    """A stream that keeps what is sent on it."""

    def __init__(self) -> None:
        super().__init__(parts=[])

    def send_multipart(self, parts: list[Any], *args: Any, **kwargs: Any) -> None:
        self.parts.append([bytes(part) for part in parts])

    def send(self, part: bytes, *args: Any, **kwargs: Any) -> None:
        self.send_multipart([part])

    def flush(self) -> None:
        """Nothing comes."""


class Scheduler(patient(TaskScheduler)):  # type: ignore[misc]
    """The lab's scheduler, on streams that only keep what is sent."""

    client_stream = engine_stream = mon_stream = notifier_stream = None

    def __init__(self) -> None:
        super().__init__(session=SESSION)
        self.client_stream, self.engine_stream, self.mon_stream = Sent(), Sent(), Sent()
        self.notifier_stream = Sent()

    def submit(self, target: bytes) -> None:
        task = SESSION.msg("apply_request", {}, metadata={"targets": [target.decode()]})
        parts = [b"client", *SESSION.serialize(task)]
        self.dispatch_submission([zmq.Frame(part) for part in parts])

    def given_to(self) -> list[bytes]:
        return [part for (part, *_) in self.engine_stream.parts if part != b"client"]


def test_a_task_waits_for_an_engine_that_the_scheduler_has_not_heard_of():
    scheduler = Scheduler()
    scheduler._register_engine(b"first")
    scheduler.submit(b"second")
    assert (scheduler.given_to(), scheduler.client_stream.parts) == ([], [])
    scheduler._register_engine(b"third")
    assert (scheduler.given_to(), scheduler.client_stream.parts) == ([], [])
    scheduler._register_engine(b"second")
    assert (scheduler.given_to(), scheduler.client_stream.parts) == ([b"second"], [])


def test_a_task_for_an_engine_that_has_left_is_impossible():
    scheduler = Scheduler()
    scheduler._register_engine(b"first")
    scheduler._register_engine(b"second")
    scheduler._unregister_engine(b"second")
    scheduler.submit(b"second")
    ((*_, content),) = scheduler.client_stream.parts
    assert SESSION.unpack(content)["ename"] == "ImpossibleDependency"
    assert scheduler.given_to() == []


def test_the_controller_takes_that_scheduler(monkeypatch):
    monkeypatch.setattr(
        IPController, "get_python_scheduler_args", lambda self, name, kind, *_: {"kind": kind}
    )
    given = LabController().get_python_scheduler_args("task", TaskScheduler, "")
    assert [kind.__name__ for kind in given["kind"].mro()[:2]] == ["Patient", "TaskScheduler"]
