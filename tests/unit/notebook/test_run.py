"""What a cell shows makes room for what came of it; what the user sees above an input request."""

from __future__ import annotations

import builtins
import getpass
import sys
import threading
from types import SimpleNamespace

import pytest

from labkit.base import times
from labkit.base.errors import RankError
from labkit.notebook import run as module
from labkit.notebook.live import Live, Page
from labkit.notebook.run import User, may_ask, run
from labkit.runtime import follow
from labkit.wire.requests import InputRequest, May
from tests.support.requests import failed, reply, request_with


class FakeScreen:
    """Note what is shown and cleared."""

    def __init__(self):
        self.done = []

    def show(self, out, err, states, seconds, suspicion):
        self.done.append("show")

    def clear(self, *, wait):
        self.done.append(("clear", wait))


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(times, "UNWATCHED", 0.0)
    monkeypatch.setattr(follow.recovery, "out_of_step", lambda cluster: False)


def live(screen):
    """Return a display on which something is shown already."""
    shown = Live(screen)
    shown.offer(lambda: ({0: "so far\n"}, {}), list)
    assert screen.done == ["show"]
    return shown


@pytest.mark.parametrize(("stdout", "wait"), [("a\n", True), ("", False)])
def test_it_waits_for_output_to_take_its_place_if_there_is_any(stdout, wait):
    screen = FakeScreen()
    finished = run(
        request_with([reply(("ok", None), stdout=stdout)]),
        live=live(screen),
        show=lambda outcomes: screen.done.append([o.stdout for o in outcomes]),
    )
    assert finished.error is None
    assert screen.done == ["show", ("clear", wait), [stdout]]


def test_an_error_takes_its_place_too():
    screen = FakeScreen()
    with pytest.raises(RankError):
        run(request_with([reply(failed("ValueError"))]), live=live(screen), show=lambda _: None)
    assert screen.done == ["show", ("clear", True)]


def test_it_is_cleared_whatever_happens(monkeypatch):
    screen = FakeScreen()

    def follow_nothing(request, **_):
        raise RuntimeError("the controller has gone")

    monkeypatch.setattr("labkit.notebook.run.follow", follow_nothing)
    with pytest.raises(RuntimeError):
        run(request_with([reply()]), live=live(screen))
    assert screen.done == ["show", ("clear", True)]


class Cell:
    """A notebook's cell that notes what is shown: text, and whether in the place of the last."""

    def __init__(self):
        self.shown = []
        self.names = []

    def show(self, bundle, name, *, update):
        assert update is (name in self.names)
        self.names.append(name)
        self.shown.append((bundle["text/html"], update))

    def clear(self, *, wait):
        self.shown.append(("cleared", wait))


@pytest.fixture
def ranks(monkeypatch):
    """What two ranks have written, the user who answers "5", and what was asked."""
    written = {0: "", 1: ""}
    asked = []

    def answer(prompt=""):
        asked.append(prompt)
        return "5"

    monkeypatch.setattr(builtins, "input", answer)
    monkeypatch.setattr(getpass, "getpass", answer)
    return SimpleNamespace(
        written=written, asked=asked, texts=lambda: (dict(written), {0: "", 1: ""})
    )


def test_on_a_page_a_question_stands_below_what_is_new_of_its_rank(ranks):
    cell = Cell()
    live = Live(Page(cell))
    asks = User(live, ranks.texts)
    ranks.written.update({0: "other\n", 1: "before\n"})
    asks.show(ranks.texts, list)
    assert asks.ask(1, InputRequest(1, "n? ")) == "5"
    ranks.written[1] += "n? 5\nafter\n"
    asks.ask(1, InputRequest(2, "m? "))
    assert ranks.asked == ["rank 1: n? ", "rank 1: m? "]
    (both, _), (first, in_place), (second, below) = cell.shown
    assert "other" in both
    assert "before" in first
    assert "other" not in first
    assert in_place
    assert "after" in second
    assert "before" not in second
    assert "n? 5" not in second  # the front end has written that down itself
    assert not below
    live.clear()
    assert cell.shown[-1][0] == "cleared"


def test_a_question_without_anything_above_shows_nothing_more(ranks):
    cell = Cell()
    live = Live(Page(cell))
    User(live, ranks.texts).ask(0, InputRequest(1, "n? "))
    assert cell.shown == []
    live.clear()  # what the front end has made of question and answer goes
    assert cell.shown == [("cleared", False)]


def test_in_a_terminal_what_is_new_is_printed(ranks, capsys):
    asks = User(Live(None), ranks.texts)
    ranks.written[0] = "before"
    asks.ask(0, InputRequest(1, "n? ", secret=True))
    ranks.written[0] += "n? \nafter\n"
    asks.ask(0, InputRequest(2, "n? "))
    assert capsys.readouterr().out == "before\nafter\n"


def test_a_terminal_can_ask_and_a_pipe_cannot(monkeypatch):
    for asks, may in ((True, May.ASK), (False, May.FRONT_END)):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda asks=asks: asks))
        assert may_ask() is may


def test_a_notebook_says_with_each_cell_whether_it_can(monkeypatch):
    for content, may in (
        ({"allow_stdin": True}, May.ASK),
        ({"allow_stdin": False}, May.FRONT_END),
        ({}, May.FRONT_END),
    ):
        shell = SimpleNamespace(get_parent=lambda content=content: {"content": content})
        monkeypatch.setattr(module.shell, "of_notebook", lambda shell=shell: shell)
        assert may_ask() is may


def test_a_thread_of_the_notebook_cannot_ask(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    found = []
    thread = threading.Thread(target=lambda: found.append(may_ask()))
    thread.start()
    thread.join()
    assert found == [May.FRONT_END]
