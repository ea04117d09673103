"""Send something to ranks, read what is there of their answers, and answer what they ask."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ipyparallel as ipp

from ..base import interrupts, times
from ..base.errors import RankDied
from ..deadlock.samples import renumber
from ..launch import few_messages, ipyparallel_internals
from ..wire import remote_calls
from ..wire.encoding import ProtocolError, decode
from ..wire.memory_files import Address
from ..wire.packing import Packed, unpack
from ..wire.requests import GiveInput, InputRequest, May
from ..wire.samples import CellCalls, Sample
from ..wire.state import CellTime, Outcome
from ..wire.texts import encodable
from . import control, diagnosis
from .cluster import RankCluster
from .output import Output, Pictures, tidy
from .process_group import GroupManager

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """Something that was sent to some ranks: what is there of it, without waiting.

    ``follow`` waits for it, ``finish`` says what came of it.
    """

    group: GroupManager
    ranks: list[int]
    result: Any  #: ipyparallel's AsyncResult
    replies: dict[int, Any]  #: rank -> ipyparallel's future of its reply
    noted: bool = False  #: it is a cell of the learner's: what it sends is what was sent last
    may: May = May.NOBODY  #: whether it may ask the user

    @classmethod
    def send(
        cls,
        group: GroupManager,
        ranks: Sequence[int],
        send: Callable[[list[int], str | None], Any],
        may: May = May.NOBODY,
    ) -> Request:
        """Send something to some ranks.

        ``send`` takes their engines and a label and returns ipyparallel's AsyncResult for all of
        them: one for each rank would double the cost of an empty cell (``make bench``). ``may``
        travels with it, as its label.

        RankDied: if one of the ranks has ended.
        """
        tidy()
        cluster = group.cluster
        if dead := [r for r in ranks if r in cluster.deaths]:
            raise RankDied(*diagnosis.died(cluster, dead))
        cluster.note_asked(ranks)
        result = send([cluster.places[r].engine for r in ranks], may.value or None)
        replies = ipyparallel_internals.replies(result)
        for rank, reply in zip(ranks, replies, strict=True):
            cluster.late.note(cluster.places[rank].engine, reply)
        return cls(group, list(ranks), result, dict(zip(ranks, replies, strict=True)), may=may)

    @property
    def cluster(self) -> RankCluster:
        """The processes that it was sent to some of."""
        return self.group.cluster

    def has_replied(self, rank: int) -> bool:
        """Return whether a rank's reply is there."""
        return bool(self.replies[rank].done())

    def busy(self) -> list[int]:
        """Return the ranks that have not ended, dead ones left out."""
        return [r for r in self.replies if not (self.has_replied(r) or r in self.cluster.deaths)]

    def dead(self) -> list[int]:
        """Return the ranks whose process has ended."""
        return [r for r in self.ranks if r in self.cluster.deaths]

    def lacking(self) -> list[int]:
        """Return the ranks that have replied and whose last output has not come."""
        replied = [r for r in self.ranks if self.has_replied(r) and r not in self.cluster.deaths]
        return [r for r in replied if not self.replies[r].output.done()]

    def failures(self) -> dict[int, str]:
        """Return the names of the errors that ranks have raised, by rank."""
        done = [r for r in self.ranks if self.has_replied(r) and r not in self.cluster.deaths]
        errors = {r: _unwrap_error(self.replies[r].result()) for r in done}
        return {r: error[0] for r, error in errors.items() if error is not None}

    def texts(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return what the ranks show so far: text of stdout and displays, and of stderr."""
        written = {r: reply.labkit_output for r, reply in self.replies.items()}
        err = {r: seen.text("stderr") for r, seen in written.items()}
        return {r: seen.shown() for r, seen in written.items()}, err

    def pictures(self) -> dict[int, Pictures]:
        """Return the pictures that each rank shows so far; a rank without any is left out."""
        found = {r: reply.labkit_output.pictures() for r, reply in self.replies.items()}
        return {r: pictures for r, pictures in found.items() if pictures.bundles}

    def asked(self, ranks: Sequence[int]) -> list[concurrent.futures.Future[InputRequest]]:
        """Return the futures of what some ranks may ask the user."""
        return [self.replies[r].labkit_output.asked for r in ranks]

    def take_asked(self, ranks: Sequence[int]) -> dict[int, InputRequest]:
        """Return what some ranks ask the user, each question once."""
        found = {r: self.replies[r].labkit_output.take_asked() for r in ranks}
        return {r: asked for r, asked in found.items() if asked is not None}

    def messages(self) -> dict[int, Sample]:
        """Return what ranks say of the messages that they have posted; who has none, says nothing.

        One that another version of labkit has written is left out.
        """
        told: dict[int, Sample] = {}
        for rank, reply in self.replies.items():
            if (plain := reply.labkit_output.messages) is not None:
                with contextlib.suppress(ProtocolError):
                    told[rank] = decode(Sample, plain)
        return renumber(told)

    def collectives(self) -> dict[int, CellCalls]:
        """Return what ranks say of the collectives that they have issued, as ``messages`` does."""
        told: dict[int, CellCalls] = {}
        for rank, reply in self.replies.items():
            if (plain := few_messages.collectives_of(reply)) is not None:
                with contextlib.suppress(ProtocolError):
                    told[rank] = decode(CellCalls, plain)
        return told

    def times(self) -> dict[int, CellTime]:
        """Return how long a cell took on each rank that says so: one that has died does not."""
        told = {rank: few_messages.cell_time_of(reply) for rank, reply in self.replies.items()}
        return {rank: CellTime(*time) for rank, time in told.items() if isinstance(time, list)}

    def outcomes(self) -> list[Outcome]:
        """Collect what the ranks have made so far, in the order in which they were asked."""
        return [_outcome(rank, self.replies[rank]) for rank in self.ranks]


def _outcome(rank: int, reply: Any) -> Outcome:
    seen: Output = reply.labkit_output
    out = seen.outcome(rank)
    value = reply.result() if reply.done() else None
    out.error = _unwrap_error(value)
    out.value = value if out.error is None else None
    return out


def _unwrap_error(value: Any) -> tuple[str, str, list[str]] | None:
    """Return name, message and lines of the error that a reply stands for, None if none."""
    if isinstance(value, ipp.error.RemoteError):
        lines = value.traceback.split("\n") if value.traceback else []
        return value.ename, encodable(value.evalue), [*map(encodable, lines)]
    if isinstance(value, Exception):
        name = type(value).__name__
        return name, encodable(str(value)), [encodable(f"{name}: {value}")]
    if isinstance(value, tuple) and value[:1] == ("error",):  # of labkit.rank.calls
        error = value[1]
        return (
            None if error is None else (error[0], encodable(error[1]), [*map(encodable, error[2])])
        )
    return None


def cell(group: GroupManager, ranks: Sequence[int], code: str, *, may: May = May.NOBODY) -> Request:
    """Send a cell to some ranks, after a repair of their group if it needs one.

    ``may`` says whether it may ask the user: only if somebody follows it who can be asked.
    """
    group.check()
    client = group.cluster.client

    def send(engines: list[int], label: str | None) -> Any:
        return few_messages.execute(client, engines, code, label)

    return replace(Request.send(group, ranks, send, may), noted=True)


def call(
    group: GroupManager,
    ranks: Sequence[int],
    payload: Packed,
    *,
    noted: bool = True,
    may: May = May.NOBODY,
    files: Mapping[int, Address] | None = None,
) -> Request:
    """Send a pickled ``(function, args, kwargs)`` to some ranks, after a repair as for a cell.

    ``labkit.rank.calls`` answers; :func:`values` reads that. ``noted`` is False for what
    is none of the learner's own calls, ``may`` as for a cell. ``files`` are where ranks put what is
    large of their results (``RankCluster.result_files``).
    """
    group.check()
    calls = {rank: remote_calls.call(payload, (files or {}).get(rank)) for rank in ranks}
    return replace(_send_remote_calls(group, calls, may), noted=noted)


def values(outcomes: list[Outcome], on_chunk: Callable[[int], None] | None = None) -> list[Any]:
    """Return what a pickled function (:func:`call`) gave on each rank, None where nothing.

    It is read from pickles, so types of the learner's own are loaded here. ``on_chunk`` as for
    ``packing.unpack``.
    """
    return [
        None if outcome.value is None or outcome.value[1] is None
        else unpack(outcome.value[1], on_chunk)
        for outcome in outcomes
    ]  # fmt: skip


def send_remote_call(
    group: GroupManager, ranks: Sequence[int], remote_function: remote_calls.Call[Any]
) -> Request:
    """Send some ranks one remote call; what is written meanwhile is not the remote call's
    own."""
    return send_remote_calls(group, dict.fromkeys(ranks, remote_function))


def send_remote_calls(group: GroupManager, calls: Mapping[int, remote_calls.Call[Any]]) -> Request:
    """Send ranks a remote call each, as ``send_remote_call`` does."""
    sent = _send_remote_calls(group, calls, May.NOBODY)
    for reply in sent.replies.values():
        group.cluster.late.keep(reply)
    return sent


def _send_remote_calls(
    group: GroupManager, calls: Mapping[int, remote_calls.Call[Any]], may: May
) -> Request:
    def send(engines: list[int], label: str | None) -> Any:
        asked = {engine: (call,) for engine, call in zip(engines, calls.values(), strict=True)}
        return few_messages.apply(group.cluster.client, remote_calls.on_rank, asked, label)

    return Request.send(group, list(calls), send, may)


# -- what ranks ask the user --------------------------------------------------------------------

#: Shows the user what a rank asks, and returns the answer. EOFError: the end of the input; any
#: other error but an interrupt: nobody can answer.
Ask = Callable[[int, InputRequest], str]


class Asks:
    """What the ranks of one request ask: one input request at a time, in the order of the ranks.

    Without ``ask`` nobody can answer, and every input request is refused.
    """

    def __init__(self, request: Request, ask: Ask | None) -> None:
        self._request = request
        self._ask = ask
        self._open: dict[int, InputRequest] = {}  # by rank
        self._turn: tuple[int, float] | None = None  # the rank that was answered, until when

    def serve(self, busy: Sequence[int], waiting: Collection[int]) -> bool:
        """Make one input request be answered, if there is one; return whether it was.

        ``busy`` are the ranks that have not ended, ``waiting`` those of them that are known to wait
        for others: these do not ask again soon. A press of stop instead of an answer is raised.
        """
        clock = self._request.cluster.clock
        self._open |= self._request.take_asked(busy)
        self._open = {r: asked for r, asked in self._open.items() if r in busy}
        if not self._open:
            return False
        rank = min(self._open)
        if self._turn is not None:
            last, until = self._turn
            if last in self._open:
                rank = last
            elif last in busy and last not in waiting and clock.now() < until:
                return False
        asked = self._open.pop(rank)
        self._answer(rank, asked)
        self._turn = (rank, clock.now() + times.NEXT_INPUT_REQUEST.seconds())
        return True

    def _answer(self, rank: int, asked: InputRequest) -> None:
        text: str | None = None
        refused = self._ask is None
        if self._ask is not None:
            try:
                with interrupts.unshielded():
                    text = self._ask(rank, asked)
            except EOFError:
                pass
            except Exception as error:
                _log.info("nobody can answer rank %d: %r", rank, error)
                refused = True
        # A rank that has died meanwhile is not there; one that was stopped waits for no answer.
        control.ask(self._request.cluster, {rank: GiveInput(asked.number, text, refused)})
