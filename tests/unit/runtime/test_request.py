"""Whose question the user is given, what becomes of the answer, and what a call gave."""

from __future__ import annotations

import cloudpickle
import pytest

from labkit.base import times
from labkit.runtime import request as module
from labkit.runtime.request import Asks, values
from labkit.wire.encoding import encode
from labkit.wire.requests import INPUT_REQUEST, GiveInput, InputRequest
from labkit.wire.state import Outcome
from tests.support.requests import reply, request_with
from tests.support.virtual_clock import VirtualClock


class Ranks:
    """Four ranks that are only written down: what they ask, what they were answered."""

    def __init__(self, monkeypatch):
        self.replies = [reply(done=False) for _ in range(4)]
        self.clock = VirtualClock()
        self.request = request_with(self.replies, clock=self.clock)
        self.answers: list[tuple[int, GiveInput]] = []
        self.numbers = 0
        monkeypatch.setattr(module.control, "ask", self._answered)

    def ask(self, rank, prompt="? "):
        self.numbers += 1
        content = {
            "data": {INPUT_REQUEST: encode(InputRequest(self.numbers, prompt))},
            "metadata": {},
        }
        message = {"header": {"msg_type": "display_data"}, "content": content}
        self.replies[rank].labkit_output.note(message)

    def _answered(self, cluster, questions):
        self.answers += questions.items()
        return {}


@pytest.fixture
def ranks(monkeypatch):
    return Ranks(monkeypatch)


ALL = range(4)


def test_ranks_are_answered_in_their_order_one_at_a_time(ranks):
    asks = Asks(ranks.request, lambda rank, asked: f"{rank}{asked.prompt}")
    assert not asks.serve(ALL, ())
    ranks.ask(3)
    ranks.ask(1)
    assert asks.serve(ALL, ())
    ranks.clock.sleep(times.NEXT_INPUT_REQUEST.seconds())
    assert asks.serve(ALL, ())
    assert not asks.serve(ALL, ())
    assert ranks.answers == [(1, GiveInput(2, "1? ")), (3, GiveInput(1, "3? "))]


def test_a_rank_that_was_answered_keeps_its_turn(ranks):
    asks = Asks(ranks.request, lambda rank, asked: "")
    ranks.ask(1)
    ranks.ask(2)
    assert asks.serve(ALL, ())
    assert not asks.serve(ALL, ())  # rank 1 may ask again at once
    ranks.ask(1)
    assert asks.serve(ALL, ())
    assert asks.serve(ALL, {1})  # it waits for others, so rank 2 comes
    assert [rank for rank, _ in ranks.answers] == [1, 1, 2]


def test_a_turn_is_over_after_a_while(ranks, monkeypatch, factor):
    asks = Asks(ranks.request, lambda rank, asked: "")
    ranks.ask(1)
    ranks.ask(2)
    assert asks.serve(ALL, ())
    ranks.clock.sleep(0.99 * factor)
    assert not asks.serve(ALL, ())
    ranks.clock.sleep(0.02 * factor)
    assert asks.serve(ALL, ())
    assert [rank for rank, _ in ranks.answers] == [1, 2]


def test_a_rank_that_has_ended_keeps_no_turn_and_gets_no_answer(ranks):
    asks = Asks(ranks.request, lambda rank, asked: "")
    ranks.ask(0)
    ranks.ask(1)
    ranks.ask(2)
    assert asks.serve(ALL, ())
    assert asks.serve([2, 3], ())
    assert not asks.serve([2, 3], ())
    assert [rank for rank, _ in ranks.answers] == [0, 2]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (EOFError(), GiveInput(1, None)),
        (NotImplementedError("no stdin"), GiveInput(1, None, refused=True)),
        (OSError("captured"), GiveInput(1, None, refused=True)),
    ],
)
def test_the_end_of_the_input_and_a_front_end_that_cannot_ask_are_told(ranks, error, answer):
    def ask(rank, asked):
        raise error

    ranks.ask(2)
    assert Asks(ranks.request, ask).serve(ALL, ())
    assert ranks.answers == [(2, answer)]


def test_where_nobody_can_answer_each_question_is_refused(ranks):
    ranks.ask(2)
    assert Asks(ranks.request, None).serve(ALL, ())
    assert ranks.answers == [(2, GiveInput(1, None, refused=True))]


def test_a_newer_question_takes_the_place_of_one_that_was_given_up(ranks):
    ranks.ask(2, "first? ")
    ranks.ask(2, "second? ")
    asks = Asks(ranks.request, lambda rank, asked: asked.prompt)
    assert asks.serve(ALL, ())
    assert ranks.answers == [(2, GiveInput(2, "second? "))]


def test_values_are_unpickled_where_there_are_any():
    sent = [Outcome(0, value=("ok", cloudpickle.dumps([1, 2]))), Outcome(1, value=("ok", None))]
    assert values([*sent, Outcome(2, error=("E", "", []))]) == [[1, 2], None, None]
