"""Run things on ranks and wait for them: cells, functions, variables, questions."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import ipyparallel as ipp

from . import display
from .cluster import RankCluster, on_rank
from .errors import LabError, RankDied, RankError
from .status import RankState

#: Seconds between looks at the ranks while something runs.
TICK = 0.2
#: Seconds that ranks get to end by themselves after an interrupt or a death.
GRACE = 1.5
#: Seconds to wait for the last output of a rank whose cell has ended.
OUTPUT_SECONDS = 5.0
#: Seconds for the answer to a question on the control channel.
ANSWER_SECONDS = 1.0


@dataclass
class Outcome:
    """What one rank made of a cell or a call."""

    rank: int
    stdout: str = ""
    stderr: str = ""
    displays: list[dict[str, Any]] = field(default_factory=list)  #: mime bundles
    result: dict[str, Any] | None = None  #: mime bundle of the last expression
    value: Any = None  #: of a call
    error: tuple[str, str, list[str]] | None = None  #: name, message, formatted lines


class Pending:
    """Something that runs on some ranks.

    ``send`` takes a view of their engines and returns ipyparallel's AsyncResult for all of
    them: one for each rank would double the cost of an empty cell (``make bench``).
    """

    def __init__(
        self, cluster: RankCluster, ranks: Sequence[int], send: Callable[[Any], Any]
    ) -> None:
        if dead := [r for r in ranks if r in cluster.deaths]:
            raise _died(cluster, dead)
        self.cluster = cluster
        self.ranks = list(ranks)
        engines = [cluster.places[r].engine for r in ranks]
        self.result = send(cluster.client.direct_view(engines))
        #: rank -> ipyparallel's future of its reply
        self.replies = dict(zip(self.ranks, self.result._children, strict=True))

    def busy(self) -> list[int]:
        """Return the ranks that have not ended, dead ones left out."""
        return [r for r, reply in self.replies.items() if not (reply.done() or self._dead(r))]

    def _dead(self, rank: int) -> bool:
        return rank in self.cluster.deaths

    def wait(self, signum: str | int = "SIGINT") -> None:
        """Wait for every rank; on an interrupt send ``signum`` to those that are busy.

        Raises
        ------
        KeyboardInterrupt
            After the ranks were interrupted too.
        """
        try:
            while busy := self.busy():
                if any(self._dead(r) for r in self.ranks):
                    self._wait_a_little(busy)
                    break
                self.replies[busy[0]].wait(TICK)
        except KeyboardInterrupt:
            self.cluster.signal(self.busy(), signum)
            self._wait_a_little(self.busy())
            raise
        # The reply can be here before the last output is.
        ended = [r.output for n, r in self.replies.items() if r.done() and not self._dead(n)]
        concurrent.futures.wait(ended, OUTPUT_SECONDS)

    def _wait_a_little(self, ranks: Sequence[int]) -> None:
        deadline = time.monotonic() + GRACE
        for rank in ranks:
            self.replies[rank].wait(max(0.0, deadline - time.monotonic()))

    def outcomes(self) -> list[Outcome]:
        """Collect what the ranks have made so far, in rank order."""
        return [_outcome(rank, self.replies[rank]) for rank in self.ranks]

    def raise_errors(self, outcomes: Sequence[Outcome]) -> None:
        """Raise what went wrong, if anything did: deaths first, then distinct errors."""
        if dead := [r for r in self.ranks if self._dead(r)]:
            raise _died(self.cluster, dead, self.busy())
        errors = {o.rank: o.error for o in outcomes if o.error}
        if errors:
            raise RankError(*display.error_texts(errors))


def _outcome(rank: int, reply: Any) -> Outcome:
    md = reply.output.metadata
    # A shell command's output comes through a terminal, with its line ends.
    stdout, stderr = ((md[name] or "").replace("\r\n", "\n") for name in ("stdout", "stderr"))
    out = Outcome(rank, stdout, stderr)
    out.displays = [message["data"] for message in md["outputs"]]
    out.result = md["execute_result"]["data"] if md["execute_result"] else None
    value = reply.result() if reply.done() else None
    if isinstance(value, ipp.error.RemoteError):
        lines = value.traceback.split("\n") if value.traceback else []
        out.error = (value.ename, value.evalue, lines)
    elif isinstance(value, Exception):
        name = type(value).__name__
        out.error = (name, str(value), [f"{name}: {value}"])
    else:
        out.value = value
    return out


def _died(cluster: RankCluster, dead: Sequence[int], busy: Sequence[int] = ()) -> RankDied:
    how = display.fold({rank: cluster.deaths[rank] for rank in dead})
    parts = [f"{display.label(ranks)} ended with {text}" for ranks, text in how]
    if busy:
        parts.append(f"{display.label(busy)} did not return from this cell")
    summary = "; ".join(parts) + ". lab.restart() gives you fresh ranks."
    return RankDied(summary, [display.red("RankDied") + f": {summary}"])


# -- cells --------------------------------------------------------------------------------------


def cell(cluster: RankCluster, ranks: Sequence[int], code: str) -> Pending:
    """Send a cell to some ranks."""
    return Pending(cluster, ranks, lambda view: view.execute(code, silent=False, block=False))


# -- calls --------------------------------------------------------------------------------------


def call(cluster: RankCluster, ranks: Sequence[int], payload: bytes) -> list[Any]:
    """Call a pickled function on some ranks; show what it printed; return its results."""
    pending = Pending(cluster, ranks, lambda view: view.apply_async(on_rank, "calls.call", payload))
    try:
        pending.wait()
    finally:
        outcomes = [_unwrap(outcome) for outcome in pending.outcomes()]
        display.show(outcomes)
    pending.raise_errors(outcomes)
    return [outcome.value for outcome in outcomes]


def _unwrap(outcome: Outcome) -> Outcome:
    """Turn the answer of ``labkit.rank.calls`` into a value or an error."""
    if outcome.error is None and outcome.value is not None:
        kind, content = outcome.value
        if kind == "error":
            outcome.error = content
        else:
            outcome.value = None if content is None else cloudpickle.loads(content)
    return outcome


def pull(cluster: RankCluster, name: str) -> list[Any]:
    """Return a variable of every rank; LabError names the ranks that do not have it."""
    everyone = range(len(cluster.places))
    pending = Pending(cluster, everyone, lambda view: view.apply_async(on_rank, "calls.pull", name))
    pending.wait()
    outcomes = pending.outcomes()
    missing = [o.rank for o in outcomes if o.value and o.value[0] == "missing"]
    if missing:
        raise LabError(f"There is no variable {name!r} on {display.label(missing)}.")
    outcomes = [_unwrap(o) for o in outcomes]
    pending.raise_errors(outcomes)
    return [o.value for o in outcomes]


def push(cluster: RankCluster, payload: bytes) -> None:
    """Set variables on every rank from a pickled dict."""
    everyone = range(len(cluster.places))
    pending = Pending(
        cluster, everyone, lambda view: view.apply_async(on_rank, "calls.push", payload)
    )
    pending.wait()
    pending.raise_errors([_unwrap(o) for o in pending.outcomes()])


# -- questions ----------------------------------------------------------------------------------


def ask(cluster: RankCluster, ranks: Sequence[int], message: str) -> dict[int, dict[str, Any]]:
    """Ask ranks on their control channel, which answers while a cell runs.

    Returns the answers by rank; a rank that gives none within ``ANSWER_SECONDS`` is left out.
    """
    client = cluster.client
    futures = {}
    for rank in ranks:
        engine = cluster.places[rank].engine
        if rank not in cluster.deaths and engine in client.ids:
            (identity,) = client._build_targets(engine)[0]
            futures[rank] = client._send(client._control_stream, message, {}, ident=identity)
    deadline = time.monotonic() + ANSWER_SECONDS
    answers = {}
    for rank, future in futures.items():
        if future.wait(max(0.0, deadline - time.monotonic())):
            answers[rank] = future.result()["content"]
    return answers


def survey(cluster: RankCluster) -> list[RankState]:
    """Find out what every rank does now."""
    answers = ask(cluster, range(len(cluster.places)), "labkit_survey")
    states = []
    for place in cluster.places:
        where = ""
        if place.rank in cluster.deaths:
            state = f"dead: {cluster.deaths[place.rank]}"
        elif place.rank not in answers:
            state = "not answering"
        else:
            answer = answers[place.rank]
            state = "busy" if answer["busy"] else "idle"
            if answer["where"]:
                where = f"{answer['where']}: {answer['line']}"
        states.append(
            RankState(place.rank, place.host, place.pid, place.device, place.backend, state, where)
        )
    return states
