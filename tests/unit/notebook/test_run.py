"""What is shown while a cell runs makes room for what came of it."""

from __future__ import annotations

import pytest

from labkit import times
from labkit.errors import RankError
from labkit.notebook.live import Live
from labkit.notebook.run import run
from labkit.runtime import follow
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
