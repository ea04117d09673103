"""What the controller notes of requests, and what it leaves to ipyparallel's own functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ipyparallel.controller.dictdb import DictDB, NoDB
from jupyter_client.session import Session

from labkit.launch.hub_internals import note_ids_only

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
