"""What a rank does with what comes on its control channel."""

from __future__ import annotations

from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.rank import control
from labkit.rank.observe.sampler import Sampler
from labkit.wire.encoding import encode
from labkit.wire.requests import REFUSED, REPLY, AskWatch, Count, Question, Request, Shut, Watched


class Kernel:
    """An engine's kernel: what it has for which message, and what it sent."""

    def __init__(self) -> None:
        self.control_handlers: dict[str, Any] = {}
        later = lambda seconds, function: None  # noqa: E731
        self.control_thread = SimpleNamespace(io_loop=SimpleNamespace(call_later=later))
        self.session = self
        self.sent: list[tuple[str, object]] = []
        control.install(self)

    def send(self, stream: Any, name: str, content: object, **about: Any) -> None:
        assert (stream, about["ident"]) == ("stream", "me")
        self.sent.append((name, content))

    def receive(self, request: Request, content: object) -> None:
        self.control_handlers[request]("stream", "me", {"content": content})


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


def test_every_request_has_a_handler_a_question_and_an_answer() -> None:
    asked = [h.question for h in control.handlers(Sampler(lambda seconds, function: None))]
    assert sorted(q.request for q in asked) == sorted(Request)
    assert Question.kinds == {q.request: q for q in asked}
    assert all(is_dataclass(q) and is_dataclass(q.answer) for q in asked)


def test_a_question_is_answered(kernel: Kernel) -> None:
    kernel.receive(Request.SHUT, encode(Shut(())))
    assert kernel.sent == [(REPLY, encode(Count(0)))]


def test_a_question_with_a_renamed_key_is_refused_with_the_reason(kernel: Kernel) -> None:
    kernel.receive(Request.SHUT, {"connections": []})
    why = "Shut: Object missing required field `pairs`"
    assert kernel.sent == [(REPLY, {REFUSED: why})]


def test_a_watch_is_answered_when_it_has_to_be(kernel: Kernel) -> None:
    kernel.receive(Request.WATCH, encode(AskWatch(())))
    assert kernel.sent == []
    kernel.receive(Request.WATCH, encode(AskWatch(())))
    assert kernel.sent == [(REPLY, encode(Watched(None)))]
