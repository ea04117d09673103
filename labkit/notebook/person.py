"""Ask the person at this front end what a rank asks: below what that rank has printed."""

from __future__ import annotations

import getpass
import sys
import threading
from collections.abc import Callable

from ..rank_names import label
from ..runtime.watchdog import Suspicion
from ..wire.asking import InputRequest, May
from . import shell
from .board import Texts
from .live import Live, Look


def may_ask() -> May:
    """Tell whether this front end can ask somebody: it says so with each cell that it sends."""
    if threading.current_thread() is not threading.main_thread():
        return May.FRONT_END
    notebook = shell.of_notebook()
    if notebook is None:
        return May.ASK if sys.stdin is not None and sys.stdin.isatty() else May.FRONT_END
    return May.ASK if shell.can_ask(notebook) else May.FRONT_END


class Person:
    """Who answers the input requests of one cell.

    Parameters
    ----------
    live
        What the cell shows while it runs.
    texts
        Returns what ranks wrote to stdout and stderr so far.
    """

    def __init__(self, live: Live, texts: Callable[[], tuple[Texts, Texts]]) -> None:
        self._live = live
        self._texts = texts
        #: What ranks had written at their last answers, to stdout and to stderr.
        self._seen: tuple[dict[int, str], dict[int, str]] = ({}, {})

    def ask(self, rank: int, asked: InputRequest) -> str:
        """Return the answer to an input request of a rank.

        Raises
        ------
        EOFError
            If the input has ended (Ctrl-D).
        """
        texts = self._texts()
        new = "".join(part[rank] for part in self._without_seen(texts))
        if not self._live.before_input(rank, new) and new:
            print(new, end="" if new.endswith("\n") else "\n", flush=True)
        for seen, part in zip(self._seen, texts, strict=True):
            seen[rank] = part[rank]
        prompt = f"{label([rank])}: {asked.prompt}"
        answer = getpass.getpass(prompt) if asked.secret else input(prompt)
        # The rank writes it down as well, for the text that stays.
        self._seen[0][rank] += asked.prompt + ("" if asked.secret else answer) + "\n"
        return answer

    def show(
        self,
        texts: Callable[[], tuple[Texts, Texts]],
        look: Look,
        suspicion: Suspicion | None = None,
    ) -> None:
        """Show what is new as ``Live.offer`` does, without what stands above the last answers."""

        self._live.offer(lambda: self._without_seen(texts()), look, suspicion)

    def _without_seen(self, texts: tuple[Texts, Texts]) -> tuple[Texts, Texts]:
        """Return what ranks have written since their last answers."""
        out, err = texts
        seen_out, seen_err = self._seen
        return _cut(out, seen_out), _cut(err, seen_err)


def _cut(texts: Texts, seen: Texts) -> Texts:
    """Return texts without what they begin with; one that was written over stays whole."""
    return {rank: text.removeprefix(seen.get(rank, "")) for rank, text in texts.items()}
