"""What somebody who looks on sees while a cell runs, and how long nobody waits for a suspicion."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from labkit.base import times, variables
from labkit.base.errors import UsageError
from labkit.notebook import live
from labkit.notebook.live import Line, Live, Page, patience
from labkit.wire.state import RankState
from tests.support.virtual_clock import VirtualClock
from tests.unit.notebook.test_board import SEEMS, suspicion, text_of

WAITING = RankState(1, "host", 1, "cpu", "gloo", "waiting", detail="recv from rank 0")


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch):
    for name in (live.LIVE, variables.SUSPECT, "CI"):
        monkeypatch.delenv(name, raising=False)


# -- how long a suspicion may last ----------------------------------------------------------------


def test_nobody_ends_a_suspicion_where_somebody_looks_on(monkeypatch):
    monkeypatch.setattr(live.sys, "stdout", SimpleNamespace(isatty=lambda: True))
    assert patience() is None


def test_a_cell_that_has_shown_something_itself_is_looked_at_all_the_same(monkeypatch):
    """Nothing else can be shown there, but the stop button works."""
    monkeypatch.setattr(live.shell, "of_notebook", notebook(allow_stdin=True))
    monkeypatch.setattr(live, "current_output", lambda: None)
    assert live.screen() is None
    assert patience() is None


def notebook(**content):
    """Return a front end that sends this with its cells."""
    return lambda: SimpleNamespace(get_parent=lambda: {"content": content} if content else {})


def test_nobody_looks_on_where_a_program_runs_the_notebook(monkeypatch):
    """nbclient says with each cell that it can ask nobody: jupyter execute, nbconvert."""
    monkeypatch.setattr(live, "current_output", lambda: None)
    monkeypatch.setattr(live.shell, "of_notebook", notebook(allow_stdin=False))
    assert patience() == times.SUSPECT
    monkeypatch.setattr(live.shell, "of_notebook", notebook())  # another thread than the cell's
    assert patience() is None


def test_where_nobody_looks_on_a_suspicion_has_a_minute(monkeypatch):
    monkeypatch.setattr(live.sys, "stdout", SimpleNamespace(isatty=lambda: False))
    assert patience() == times.SUSPECT == 60


@pytest.mark.parametrize("watched", [True, False])
def test_the_setting_decides_wherever_it_is_set(monkeypatch, watched):
    monkeypatch.setattr(live.sys, "stdout", SimpleNamespace(isatty=lambda: watched))
    monkeypatch.setenv(variables.SUSPECT, "2.5")
    assert patience() == 2.5


def test_a_setting_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv(variables.SUSPECT, "soon")
    with pytest.raises(UsageError, match=r"^The variable LABKIT_SUSPECT_SECONDS .* got 'soon'\.$"):
        patience()


@pytest.mark.parametrize("name", [live.LIVE, "CI"])
def test_where_nobody_looks_on(monkeypatch, name):
    monkeypatch.setattr(live.sys, "stdout", SimpleNamespace(isatty=lambda: True))
    assert isinstance(live.screen(), Line)
    monkeypatch.setenv(name, "0")
    assert (live.screen() is None) == (name == live.LIVE)
    monkeypatch.setenv(name, "1")
    assert (live.screen() is None) == (name == "CI")


# -- what is shown --------------------------------------------------------------------------------


def line(seconds):
    """Return what a terminal's line says of a suspicion that has lasted for some seconds."""
    stream = io.StringIO()
    Line(stream).show({}, {}, [WAITING], 7, None if seconds is None else suspicion(seconds))
    return stream.getvalue()


@pytest.mark.parametrize("seconds", [None, times.STOP_OFFERED - 1])
def test_a_terminal_offers_nothing_at_first(monkeypatch, seconds):
    monkeypatch.setenv("COLUMNS", "200")
    assert line(seconds).endswith("0:07  rank 1: waiting in recv from rank 0")


def test_a_terminal_offers_the_stop_after_a_while(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "0:07  suspected deadlock, Ctrl-C stops the cell; rank 1: waiting" in line(6)


def test_a_page_shows_the_suspicion_below_the_board():
    shown = []
    cell = SimpleNamespace(show=lambda bundle, name, update: shown.append(bundle["text/html"]))
    Page(cell).show({}, {}, [WAITING], 7, suspicion(6, "a thread is alive"))
    text = text_of(shown[0])
    assert text.index("0:07") < text.index(f"Suspected for 6 s: {SEEMS}")
    assert "The stop button" in text


def test_a_screen_gets_the_suspicion_with_each_new_look():
    seen = []
    screen = SimpleNamespace(show=lambda *args: seen.append(args[-1]))
    display = Live(screen, board_after=0)
    suspected = suspicion(1)
    display.offer(lambda: ({}, {}), lambda: [WAITING], suspected)
    assert seen == [suspected]


class Shown:
    """A cell that runs: when its ranks were asked what they do, and what was shown."""

    def __init__(self, **named):
        self.clock = VirtualClock()
        self.texts = {}, {}
        self.looks, self.shown = [], []
        screen = SimpleNamespace(
            show=lambda *args: self.shown.append((self.clock.time, *args)),
            clear=lambda *, wait: self.shown.append("cleared"),
        )
        self.live = Live(screen, clock=self.clock, **named)

    def offer_until(self, seconds, look_takes=0.0):
        def look():
            self.looks.append(self.clock.time)
            self.clock.sleep(look_takes)
            return [WAITING]

        while self.clock.time < seconds:
            self.live.offer(lambda: self.texts, look)
            self.clock.sleep(times.TICK)


def test_the_board_comes_after_a_second_and_is_new_every_second():
    cell = Shown()
    cell.offer_until(0.9)
    assert (cell.looks, cell.shown) == ([], [])
    cell.offer_until(5)
    assert cell.looks == pytest.approx([1, 2, 3, 4], abs=0.25)
    assert [(out, err, board, seconds) for _, out, err, board, seconds, _ in cell.shown] == [
        ({}, {}, [WAITING], seconds) for seconds in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(("after", "looks"), [(-1, 0), (10, 11), (0, 20)])
def test_the_board_comes_when_it_is_asked_for(after, looks):
    cell = Shown(board_after=after)
    cell.offer_until(20.1)
    assert abs(len(cell.looks) - looks) <= 1


def test_what_is_written_is_shown_before_the_board():
    cell = Shown()
    cell.texts = {0: "a"}, {}
    cell.offer_until(0.9)
    assert [(out, board, seconds) for _, out, _, board, seconds, _ in cell.shown] == [
        ({0: "a"}, (), 0)
    ]


def test_a_slow_look_at_the_ranks_leaves_most_of_the_time_to_the_cell():
    cell = Shown()
    cell.offer_until(30, look_takes=2.0)
    assert cell.looks == pytest.approx([1, 7, 13, 19, 25], abs=1)


def test_the_time_goes_on_though_nothing_else_changes():
    cell = Shown(board_after=-1)
    cell.texts = {0: "a"}, {}
    cell.offer_until(3.9)
    assert [seconds for *_, seconds, _ in cell.shown] == [0, 1, 2, 3]


def test_on_a_busy_machine_the_board_comes_as_soon(monkeypatch):
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=20.0))
    cell = Shown()
    cell.offer_until(5)
    assert cell.looks == pytest.approx([1, 2, 3, 4], abs=0.25)


# -- how far the notebook itself has come ---------------------------------------------------------


class Screen:
    """Notes what is shown."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def note(self, text: str) -> None:
        self.seen.append(text)

    def clear(self, *, wait: bool) -> None:
        self.seen.append("cleared")


def test_a_copy_is_shown_that_takes_longer_and_goes_at_the_end():
    clock, screen = VirtualClock(), Screen()
    with Live(screen, clock=clock) as shown:
        for count in range(7):
            shown.note(f"{count} MiB sent")
            clock.sleep(times.BOARD / 4)
    assert screen.seen == ["0:01 · 4 MiB sent", "0:01 · 5 MiB sent", "0:01 · 6 MiB sent", "cleared"]


def test_a_short_copy_shows_nothing():
    screen = Screen()
    with Live(screen, clock=VirtualClock()) as shown:
        shown.note("1 MiB sent")
    assert screen.seen == []


def test_a_page_shows_anew_what_comes_after_it_was_cleared():
    """An update of what is gone would show nothing."""
    updates = []
    cell = SimpleNamespace(
        show=lambda bundle, name, update: updates.append(update), clear=lambda wait: None
    )
    page = Page(cell)
    page.note("1 MiB sent")
    page.note("2 MiB sent")
    page.clear(wait=True)
    page.note("1 of 2 MiB received")
    assert updates == [False, True, False]
