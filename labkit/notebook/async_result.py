"""Watch a cell that does not block, from the moment on in which somebody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION
from typing import Any

import ipyparallel as ipp

from .. import interrupts
from ..errors import Interrupted, RankError
from ..launch import ipyparallel_internals
from ..runtime.diagnosis import Ending
from ..runtime.finish import finish
from ..runtime.follow import Watch, follow
from ..runtime.request import Request
from .live import patience


class _Enough(Exception):
    """Raised while a cell is followed: what somebody waits for is there."""


class Watched:
    """What a cell that does not block came to, as far as anybody has waited for it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.error: RankError | Interrupted | None = None  #: a deadlock, or the end of a rank
        self._watch = Watch(request)
        self._finished = False

    def follow(self, seconds: float | None, enough: Callable[[], bool] | None = None) -> None:
        """Wait until every rank has ended, for some seconds (None: no limit), or until ``enough``.

        Raises
        ------
        RankError
            A deadlock or the end of a rank, as a cell that blocks raises it, each time. What
            ranks raise by themselves is left to ipyparallel.
        KeyboardInterrupt
            If somebody pressed stop; the ranks go on.
        """
        with interrupts.held():
            self._follow(seconds, enough)

    def _follow(self, seconds: float | None, enough: Callable[[], bool] | None) -> None:
        if self.error is not None:
            raise self.error
        if self._finished:
            return
        if self._has_ended():  # a rank that has died since then is another matter
            self.finish(Ending())
            return

        def tick(*news: object) -> None:
            if enough is not None and enough():
                raise _Enough

        try:
            ending = follow(
                self.request,
                timeout=seconds,
                suspect=patience(),
                on_tick=None if enough is None else tick,
                watch=self._watch,
            )
        except _Enough:
            return
        if ending.kind == "interrupted":
            raise KeyboardInterrupt
        if ending.kind != "timeout":
            self.finish(ending)

    def _has_ended(self) -> bool:
        """Tell whether every rank has replied, and none of its replies says that it has died."""
        replies = self.request.replies.values()
        return all(r.done() and not isinstance(r.result(), ipp.error.EngineError) for r in replies)

    def finish(self, ending: Ending) -> None:
        """End it as a cell that blocks is ended: free its ranks, repair their group."""
        with interrupts.held():
            self._finished = True
            finished = finish(self.request, ending, tolerate=True)
            if ending.kind and finished.error is not None:
                self.error = finished.error
                raise finished.error


class AsyncResult(ipp.AsyncResult):
    """ipyparallel's, that of a cell: all that waits for it says what a cell that blocks says."""

    watched: Watched | None = None

    def wait(self, timeout: float | None = -1, return_when: str | None = None) -> Any:
        """Wait as ipyparallel does; raise a deadlock."""

        def enough() -> bool:
            done, pending = stock(0, return_when)
            if return_when == FIRST_EXCEPTION:
                return not pending or any(not part.successful() for part in done)
            return bool(done) if return_when == FIRST_COMPLETED else not pending

        stock = super().wait
        left = self._follow(timeout, None if return_when is None else enough)
        return stock(left, return_when)

    def wait_for_output(self, timeout: float | None = -1) -> Any:
        """Wait as ipyparallel does; raise a deadlock."""
        return super().wait_for_output(self._follow(timeout))

    def get(self, timeout: float | None = None, *args: Any, **named: Any) -> Any:
        """Return the results as ipyparallel does; raise a deadlock."""
        if self.watched is not None and (self.done() or self.watched.error):
            self.watched.follow(0)
        return super().get(timeout, *args, **named)

    def result(self, timeout: float | None = None) -> Any:
        """Return the results as ipyparallel does; raise a deadlock."""
        return super().result(timeout if self.done() else self._follow(timeout))

    def exception(self, timeout: float | None = None) -> Any:
        """Return the error as ipyparallel does; raise a deadlock."""
        return super().exception(timeout if self.done() else self._follow(timeout))

    def __iter__(self) -> Iterator[Any]:
        stock = super().__iter__()
        for reply in ipyparallel_internals.replies(self):
            self._follow(None, reply.done)
            yield next(stock)

    def _follow(
        self, timeout: float | None, enough: Callable[[], bool] | None = None
    ) -> float | None:
        """Follow the cell for some seconds (None or less than 0: no limit); return what is left."""
        endless = timeout is None or timeout < 0
        if self.watched is None or timeout == 0:
            return timeout
        began = time.monotonic()
        self.watched.follow(None if endless else timeout, enough)
        if endless:
            return timeout
        assert timeout is not None
        return max(0.0, timeout - (time.monotonic() - began))


def watch(request: Request) -> AsyncResult:
    """Let the result of what was sent to ranks follow it when somebody waits; return it."""
    request.result.__class__ = AsyncResult
    result: AsyncResult = request.result
    result.watched = Watched(request)
    return result
