"""Run something on ranks in the output of a cell: what they do meanwhile, what they ask the user,
then what came of it."""

from __future__ import annotations

import getpass
import sys
import threading
from collections.abc import Callable, Sequence

from ..base import interrupts
from ..base.rank_names import label
from ..runtime.follow import Finished, finish, follow
from ..runtime.request import Request
from ..runtime.watchdog import Suspicion
from ..wire.requests import InputRequest, May
from ..wire.state import Outcome
from . import shell
from . import watch as watching
from .board import Texts
from .live import Live, States, patience, screen
from .pictures import Gallery
from .show import show as show_outcomes
from .show import show_late


def run(
    request: Request,
    *,
    live: Live | None = None,
    show: Callable[[Sequence[Outcome]], None] = show_outcomes,
    signum: str | int = "SIGINT",
    timeout: float | None = None,
    tolerate: bool = False,
    watch: watching.Watch | None = None,
) -> Finished:
    """Follow what was sent, show what came of it, and raise what went wrong.

    Parameters
    ----------
    live
        What is shown while it runs; None: as this notebook or terminal allows.
    show
        Shows what the ranks made of it, at the end.
    signum, timeout, tolerate
        As for ``follow`` and ``finish``.
    watch
        Variables of the ranks that are drawn.
    """
    live = live or Live(screen())
    sampling = watch.begin(request.cluster, request.ranks) if watch is not None else None
    gallery = Gallery(request.pictures, sampling.poll if sampling else lambda: None)

    def show_instead(finished: Finished) -> None:
        late = request.cluster.take_late()
        last = watching.Last()
        if watch is not None and sampling is not None:
            last = watch.finish(sampling, well=finished.error is None)
        live.clear(wait=bool(late) or finished.shows_more() or last.shows_more())
        show_late(late)
        show(finished.outcomes)
        last.show()

    def show_meanwhile(
        texts: Callable[[], tuple[Texts, Texts]], states: States, suspicion: Suspicion | None
    ) -> None:
        user.show(texts, states, suspicion)
        live.offer_pictures(gallery.poll)

    user = User(live, request.texts)
    ask = user.ask if request.may is May.ASK else None
    with interrupts.shielded():
        try:
            ending = follow(
                request, timeout=timeout, suspect=patience(), on_tick=show_meanwhile, ask=ask
            )
            return finish(request, ending, signum=signum, show=show_instead, tolerate=tolerate)
        finally:
            live.clear(wait=True)  # where it came to nothing else


def may_ask() -> May:
    """Return whether this front end can ask the user: it says so with each cell that it sends."""
    if threading.current_thread() is not threading.main_thread():
        return May.FRONT_END
    notebook = shell.of_notebook()
    if notebook is None:
        return May.ASK if sys.stdin is not None and sys.stdin.isatty() else May.FRONT_END
    return May.ASK if shell.can_ask(notebook) else May.FRONT_END


class User:
    """Answers the input requests of one cell, each below what its rank has printed.

    ``texts`` returns what ranks wrote to stdout and stderr so far.
    """

    def __init__(self, live: Live, texts: Callable[[], tuple[Texts, Texts]]) -> None:
        self._live = live
        self._texts = texts
        #: What ranks had written at their last answers, to stdout and to stderr.
        self._seen: tuple[dict[int, str], dict[int, str]] = ({}, {})

    def ask(self, rank: int, asked: InputRequest) -> str:
        """Return the answer to an input request of a rank; EOFError: Ctrl-D was pressed."""
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
        states: States,
        suspicion: Suspicion | None = None,
    ) -> None:
        """Show what is new as ``Live.offer`` does, without what stands above the last answers."""
        self._live.offer(lambda: self._without_seen(texts()), states, suspicion)

    def _without_seen(self, texts: tuple[Texts, Texts]) -> tuple[Texts, Texts]:
        """Return what ranks have written since their last answers."""
        out, err = texts
        seen_out, seen_err = self._seen
        return _cut(out, seen_out), _cut(err, seen_err)


def _cut(texts: Texts, seen: Texts) -> Texts:
    """Return texts without what they begin with; one that was written over stays whole."""
    return {rank: text.removeprefix(seen.get(rank, "")) for rank, text in texts.items()}
