"""Show what ranks print and do while a cell runs; nothing of it stays when the cell has ended.

In a notebook that is HTML in the cell's output, without any script; in a terminal one line that
is written over. Where nobody looks on (CI, nbval, a pipe) it shows nothing and asks nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..base import times, variables
from ..base.clock import SYSTEM, Clock
from ..base.rank_names import fold, label
from ..launch.ipyparallel_internals import has_printed
from ..runtime.watchdog import Suspicion
from ..wire.state import RankState
from . import board, shell
from .board import Texts

#: Set to 0 where nobody looks on. CI, which every CI service sets, has the same effect.
LIVE = "LABKIT_LIVE"
#: Asks every rank what it does.
States = Callable[[], Sequence[RankState]]


class Screen(Protocol):
    """Where live output goes."""

    def show(
        self,
        out: Texts,
        err: Texts,
        states: Sequence[RankState],
        seconds: float,
        suspicion: Suspicion | None,
    ) -> None: ...

    def note(self, text: str) -> None: ...

    def clear(self, *, wait: bool) -> None: ...


def patience() -> float | None:
    """Return how many seconds a deadlock may be suspected before it ends a cell.

    None where somebody looks on, who can stop the cell. ``LABKIT_SUSPECT_SECONDS`` decides where
    it is set.
    """
    if (given := variables.seconds(variables.SUSPECT)) is not None:
        return given
    return None if is_watched() else times.SUSPECT


def is_watched() -> bool:
    """Return whether somebody looks on: a notebook's page or a terminal, and no CI."""
    if os.environ.get(LIVE) == "0" or os.environ.get("CI", "") not in ("", "0", "false"):
        return False
    if (notebook := shell.of_notebook()) is not None:
        return shell.can_ask(notebook) is not False
    return sys.stdout.isatty()


def screen() -> Screen | None:
    """Return what the learner looks at: a notebook's page, a terminal, or None."""
    if not is_watched():
        return None
    if shell.of_notebook() is not None:
        cell = current_output()
        return Page(cell) if cell is not None and cell.is_empty() else None
    return Line()


class Live:
    """What a cell shows while it runs: on a screen, or nowhere without one.

    ``board_after`` so many seconds the board of ranks comes; negative: never.
    """

    def __init__(
        self,
        screen: Screen | None,
        board_after: float = times.BOARD,
        clock: Clock = SYSTEM,
    ) -> None:
        self._screen = screen
        self._clock = clock
        self._began = clock.now()
        self._board_due = self._began + board_after if board_after >= 0 else float("inf")
        self._board: Sequence[RankState] = ()
        self._note_due = self._board_due
        self._shown: object = None

    def offer(
        self,
        texts: Callable[[], tuple[Texts, Texts]],
        states: States,
        suspicion: Suspicion | None = None,
    ) -> None:
        """Show what is new.

        ``texts`` returns what ranks wrote to stdout and stderr so far, ``states`` what each rank
        does; ``suspicion`` has the ranks that seem to block forever.
        """
        if self._screen is None:
            return
        out, err = texts()
        self._update_board(states)
        seconds = int(self._clock.now() - self._began)
        new = (out, err, self._board, seconds)
        # What is there may have been cleared, or cleared and written anew.
        if self._board or self._shown is not None or any((*out.values(), *err.values())):
            if new != self._shown:
                self._screen.show(out, err, self._board, seconds, suspicion)
            self._shown = new

    def _update_board(self, states: States) -> None:
        now = self._clock.now()
        if now >= self._board_due:
            self._board = states()
            # A rank that gives no answer makes this last: the cell has to be followed between.
            self._board_due = now + max(times.BOARD, 3 * (self._clock.now() - now))

    def offer_pictures(self, html: Callable[[], str | None]) -> None:
        """Show pictures below the rest of a page; None: those that are there are the newest."""
        if isinstance(self._screen, Page) and (new := html()) is not None:
            self._screen.show_pictures(new)
            self._shown = self._shown or new

    def note(self, text: str) -> None:
        """Show in one line how far the notebook itself has come: no rank is to be seen then."""
        now = self._clock.now()
        if self._screen is not None and now >= self._note_due:
            self._screen.note(f"{board.clock(now - self._began)} · {text}")
            self._shown, self._note_due = text, now + times.TICK

    def before_input(self, rank: int, text: str) -> bool:
        """Show what one rank has written last, and nothing else: it asks the user, just below.

        What comes later is shown below the answer. False if this is no place to show it: a
        terminal's one line, or none.
        """
        if not isinstance(self._screen, Page):
            self.clear()
            return False
        self._screen.settle({rank: text})
        self._shown = (rank, text)
        return True

    def clear(self, *, wait: bool = False) -> None:
        """Take all of it away; with ``wait`` when the next output comes, so that nothing jumps."""
        if self._screen is not None and self._shown is not None:
            self._screen.clear(wait=wait)
            self._shown = None

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear(wait=True)


# -- in a notebook ------------------------------------------------------------------------------


class Page:
    """The output of the cell that runs, all of it: what else was there would go too."""

    def __init__(self, cell: CellOutput) -> None:
        self._cell = cell
        self._name, self._there = uuid.uuid4().hex, False
        self._pictures, self._pictures_there = uuid.uuid4().hex, False

    def show(
        self,
        out: Texts,
        err: Texts,
        states: Sequence[RankState],
        seconds: float,
        suspicion: Suspicion | None = None,
    ) -> None:
        html = board.output_html(out, err)
        if states:
            html += board.board_html(states, seconds) + board.suspicion_html(suspicion)
        self._put(html, board.summary(states) or "running")

    def note(self, text: str) -> None:
        self._put(board.note_html(text), text)

    def _put(self, html: str, plain: str) -> None:
        bundle = {"text/html": html, "text/plain": plain}
        self._cell.show(bundle, self._name, update=self._there)
        self._there = True

    def show_pictures(self, html: str) -> None:
        """Show pictures in an output of their own: text that comes often does not send them anew.

        It stands below that of the text, which has to be there for it.
        """
        if not self._there:
            self.show({}, {}, [], 0)
        bundle = {"text/html": html, "text/plain": "pictures"}
        self._cell.show(bundle, self._pictures, update=self._pictures_there)
        self._pictures_there = True

    def settle(self, out: Texts) -> None:
        """Show something that stays where it is until all is cleared.

        Nothing is cleared for it: the input request below may reach the front end before this does.
        """
        bundle = {"text/html": board.output_html(out, {}), "text/plain": "asking"}
        if self._there or bundle["text/html"]:
            self._cell.show(bundle, self._name, update=self._there)
        self._name, self._there = uuid.uuid4().hex, False

    def clear(self, *, wait: bool) -> None:
        self._cell.clear(wait=wait)
        self._name, self._there, self._pictures_there = uuid.uuid4().hex, False, False


_current: CellOutput | None = None


def current_output() -> CellOutput | None:
    """Return the output of the cell that runs, None before :func:`follow_output`."""
    return _current


def follow_output(shell: Any) -> None:
    """Begin to follow what a kernel's cells show, once."""
    global _current
    if _current is None or _current.shell is not shell:
        _current = CellOutput(shell)


class CellOutput:
    """What the cell that runs has shown so far.

    Jupyter can only clear all of a cell's output. So what comes and goes may be shown only while
    there is nothing else.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._displayed = False
        shell.events.register("pre_run_cell", self._begin)
        shell.display_pub.register_hook(self._note)
        self._begin()

    def _begin(self, info: Any = None) -> None:
        self._displayed = False

    def _note(self, message: Any) -> Any:
        self._displayed = True
        return message

    def is_empty(self) -> bool:
        """Return whether the cell has shown nothing; False where IPython does not say."""
        return not self._displayed and has_printed(self.shell) is False

    def show(self, bundle: dict[str, str], name: str, *, update: bool) -> None:
        """Show a mime bundle, or put it in the place of the one of that name."""
        before = self._displayed
        transient = {"display_id": name}
        self.shell.display_pub.publish(bundle, transient=transient, update=update)
        self._displayed = before

    def clear(self, *, wait: bool) -> None:
        """Clear the cell's output; with ``wait`` when the next output comes."""
        self.shell.display_pub.clear_output(wait=wait)
        self._displayed = False


# -- in a terminal ------------------------------------------------------------------------------


class Line:
    """The last line of a terminal, written over again and again."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream or sys.stdout

    def show(
        self,
        out: Texts,
        err: Texts,
        states: Sequence[RankState],
        seconds: float,
        suspicion: Suspicion | None = None,
    ) -> None:
        if not states:
            return
        texts = fold({state.rank: state.describe() for state in states})
        text = "; ".join(f"{label(ranks)}: {what}" for ranks, what in texts)
        if suspicion is not None and suspicion.seconds() > times.STOP_OFFERED:
            text = f"suspected deadlock, Ctrl-C stops the cell; {text}"
        width = shutil.get_terminal_size().columns - 1
        self._write(f"{board.clock(seconds)}  {text}"[:width])

    def note(self, text: str) -> None:
        self._write(text)

    def clear(self, *, wait: bool) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[2K{text}")
        self._stream.flush()
