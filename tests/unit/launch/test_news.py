"""A hub keeps its news until the client listens that has just asked which engines are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from labkit.launch.hub_internals import hold_news


class Hub:
    """A hub whose clients ask and subscribe when a test says so."""

    def __init__(self, kind: int = zmq.XPUB) -> None:
        self.sent: list[str] = []
        self.later: list[Any] = []
        self.notifier: Any = SimpleNamespace(
            socket=SimpleNamespace(type=kind, setsockopt=lambda *_: None),
            send_multipart=self.sent.append,
            on_recv=lambda heard: setattr(self, "heard", heard),
        )
        self.loop = SimpleNamespace(call_later=lambda *call: self.later.append(call))
        self.query_handlers: dict[str, Any] = {"connection_request": lambda *_: None}
        hold_news(self, 1.0)

    def ask(self, client: str) -> None:
        message = {"header": {"session": client}}
        self.query_handlers["connection_request"](b"", message)

    def subscribe(self) -> None:
        self.heard([b"\x01"])

    def tell(self, news: str) -> list[str]:
        """Send news; return all that has gone out so far."""
        self.notifier.send_multipart(news)
        return self.sent


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_what_comes_between_answer_and_subscription_is_heard(hub: Hub) -> None:
    assert hub.tell("engine 0") == ["engine 0"]
    hub.ask("a")
    hub.ask("b")
    hub.tell("engine 1")
    assert hub.tell("engine 2") == ["engine 0"]
    hub.subscribe()
    assert hub.sent == ["engine 0"]
    hub.subscribe()
    assert hub.sent == ["engine 0", "engine 1", "engine 2"]
    assert hub.tell("engine 3")[-1] == "engine 3"


def test_a_client_that_never_listens_is_not_waited_for_long(hub: Hub) -> None:
    hub.ask("a")
    assert hub.tell("engine 0") == []
    ((seconds, arrived, token),) = hub.later
    arrived(token)
    assert (seconds, hub.sent) == (1.0, ["engine 0"])
    hub.ask("b")  # who comes later is waited for anew, whatever is still due of the first
    hub.tell("engine 1")
    arrived(token)
    assert hub.sent == ["engine 0"]


def test_one_that_asks_again_listens_already(hub: Hub) -> None:
    hub.ask("a")
    hub.subscribe()
    hub.ask("a")
    assert hub.tell("engine 0") == ["engine 0"]


def test_schedulers_that_listen_are_no_client(hub: Hub) -> None:
    hub.subscribe()
    hub.ask("a")
    assert hub.tell("engine 0") == []


def test_a_hub_that_does_not_see_who_listens_stays_as_it_is() -> None:
    hub = Hub(zmq.PUB)
    hub.ask("a")
    assert hub.tell("engine 0") == ["engine 0"]
