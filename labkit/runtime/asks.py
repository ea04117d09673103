"""Let a person answer what ranks ask: one input request at a time, in the order of the ranks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from .. import interrupts, times
from ..wire.asking import InputRequest
from ..wire.requests import GiveInput
from . import control
from .request import Request

_log = logging.getLogger(__name__)


#: Shows a person what a rank asks, and returns the answer. EOFError: the end of the input; any
#: other error but an interrupt: nobody can answer.
Ask = Callable[[int, InputRequest], str]


class Asks:
    """What the ranks of one request ask, and whose turn it is.

    Parameters
    ----------
    ask
        None: nobody can answer, and every input request is refused.
    """

    def __init__(self, request: Request, ask: Ask | None) -> None:
        self._request = request
        self._ask = ask
        self._open: dict[int, InputRequest] = {}  # by rank
        self._turn: tuple[int, float] | None = None  # the rank that was answered, until when

    def serve(self, busy: Sequence[int], waiting: Collection[int]) -> bool:
        """Let one input request be answered, if there is one; tell whether it was.

        Parameters
        ----------
        busy
            The ranks that have not ended.
        waiting
            Those of them that are known to wait for others: these do not ask again soon.

        Raises
        ------
        KeyboardInterrupt
            If somebody presses stop instead of giving an answer.
        """
        self._open |= self._request.take_asked(busy)
        self._open = {r: asked for r, asked in self._open.items() if r in busy}
        if not self._open:
            return False
        rank = min(self._open)
        if self._turn is not None:
            last, until = self._turn
            if last in self._open:
                rank = last
            elif last in busy and last not in waiting and self._request.cluster.clock.now() < until:
                return False
        asked = self._open.pop(rank)
        self._answer(rank, asked)
        self._turn = (rank, self._request.cluster.clock.now() + times.NEXT_INPUT_REQUEST.seconds())
        return True

    def _answer(self, rank: int, asked: InputRequest) -> None:
        text: str | None = None
        refused = self._ask is None
        if self._ask is not None:
            try:
                with interrupts.released():
                    text = self._ask(rank, asked)
            except EOFError:
                pass
            except Exception as error:
                _log.info("nobody can answer rank %d: %r", rank, error)
                refused = True
        # A rank that has died meanwhile is not there; one that was stopped waits for no answer.
        control.ask(self._request.cluster, {rank: GiveInput(asked.number, text, refused)})
