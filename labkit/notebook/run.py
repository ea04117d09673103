"""Run something on ranks in the output of a cell: what they do meanwhile, then what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import interrupts
from ..runtime.follow import Finished, finish, follow
from ..runtime.request import Request
from ..wire.asking import May
from ..wire.outcome import Outcome
from .live import Live, patience, screen
from .person import Person
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
) -> Finished:
    """Follow what was sent, show what came of it, and raise what went wrong.

    Parameters
    ----------
    live
        What is shown while it runs; None: as this notebook or terminal allows.
    show
        Shows what the ranks made of it, at the end.
    signum, timeout, tolerate
        As for ``runtime.finish`` and ``runtime.follow``.
    """
    live = live or Live(screen())

    def show_instead(finished: Finished) -> None:
        late = request.cluster.take_late()
        live.clear(wait=bool(late) or finished.shows_more())
        show_late(late)
        show(finished.outcomes)

    person = Person(live, request.texts)
    ask = person.ask if request.may is May.ASK else None
    with interrupts.held():
        try:
            ending = follow(
                request, timeout=timeout, suspect=patience(), on_tick=person.show, ask=ask
            )
            return finish(request, ending, signum=signum, show=show_instead, tolerate=tolerate)
        finally:
            live.clear(wait=True)  # where it came to nothing else
