"""Ask the person at this front end what a rank asks: below what that rank has printed."""

from __future__ import annotations

import getpass
import sys
import threading
from collections.abc import Callable

from ..rank_names import label
from ..wire.asking import Asked, May
from . import shell
from .live import Live, Texts


def may_ask() -> May:
    """Tell whether this front end can ask somebody: it says so with each cell that it sends."""
    if threading.current_thread() is not threading.main_thread():
        return May.FRONT_END
    notebook = shell.of_notebook()
    if notebook is None:
        return May.ASK if sys.stdin is not None and sys.stdin.isatty() else May.FRONT_END
    request = notebook.get_parent()
    return May.ASK if request.get("content", {}).get("allow_stdin") else May.FRONT_END


class Person:
    """Who answers the questions of one cell.

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
        self._printed: dict[int, str] = {}

    def ask(self, rank: int, asked: Asked) -> str:
        """Return the answer to a question of a rank.

        Raises
        ------
        EOFError
            If the input has ended (Ctrl-D).
        """
        out, err = self._texts()
        if not self._live.before_question(rank, out[rank], err[rank]):
            self._print(rank, out[rank] + err[rank])
        prompt = f"{label([rank])}: {asked.prompt}"
        return getpass.getpass(prompt) if asked.secret else input(prompt)

    def _print(self, rank: int, text: str) -> None:
        """Print what a rank has written since its last question."""
        before = self._printed.get(rank, "")
        new = text[len(before) :] if text.startswith(before) else text
        self._printed[rank] = text
        if new:
            print(new, end="" if new.endswith("\n") else "\n", flush=True)
