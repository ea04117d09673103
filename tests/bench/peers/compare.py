"""Measure all peers in turns; what one of them cannot do costs its own row only."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ..child import BenchError, environment
from ..claim import alternate
from . import install, measure, notebook
from .peer import Peer
from .result import Result

SIZES = (4, 16)
#: What keeps all of it within half an hour on two cores: more than ``measure.RANKS`` ranks whose
#: first start took longer than this are started twice, however many rounds were asked for …
SLOW_START = 10.0
#: … and a peer whose words about a skipped collective came later than this is asked once.
SLOW_WORDS = 10.0
#: What a script's rank 1 does after it has left a collective out: it goes on, or it ends.
SKIPS = {True: ("skip",), False: ("skip", "skip-end")}

Done = TypeVar("Done")


def compare(
    results: Sequence[Result],
    rounds: int,
    sizes: Sequence[int] = SIZES,
    say: Callable[[str], None] = print,
) -> None:
    """Measure every peer into its row."""
    for result in results:
        attempt(result, "install", partial(prepare, result))
    ready = [result for result in results if not result.errors]
    for ranks in sizes:
        turns = {result.peer.name: partial(start, result, ranks) for result in ready}
        alternate(rounds, turns)
        say(f"start and empty cell, {ranks} ranks: done")
    for result in ready:
        for what in SKIPS[result.peer.stays]:
            attempt(result, what, partial(skip, result, what, rounds))
        attempt(result, "left", partial(leave, result))
        if result.peer.cells:
            attempt(result, "notebook", partial(look, result))
        say(f"skipped collective, killed kernel and notebook, {result.peer.label}: done")


def attempt(result: Result, step: str, action: Callable[[], Done]) -> Done | None:
    """Do one thing; if it fails, keep the reason."""
    try:
        return action()
    except BenchError as error:
        result.errors[step] = str(error)
        return None


def prepare(result: Result) -> None:
    """Install a peer, and load once from disk what its first start reads."""
    if result.peer.installs:
        install.install(result.peer.installs)
    found = install.versions(result.peer.python())
    result.versions = {name: found.get(name, "") for name in result.peer.packages}
    with variables(result.peer) as env:
        measure.session(replace(result.peer, calls=""), 2, env)


def start(result: Result, ranks: int) -> None:
    """Start a peer once more, unless it has failed to before or is slow."""
    step = f"{ranks} ranks"
    starts = result.starts(ranks)
    slow = len(starts) > 1 and ranks > measure.RANKS and starts[0] > SLOW_START
    if step in result.errors or slow:
        return
    with variables(result.peer) as env:
        taken = attempt(result, step, partial(measure.session, result.peer, ranks, env))
    if taken is not None:
        result.sessions.setdefault(ranks, []).append(taken)


def skip(result: Result, what: str, rounds: int) -> None:
    """Skip a collective, ``rounds`` times, or once if nothing is said or it is said late."""
    said = result.said.setdefault(what, [])
    while len(said) < rounds and not (said and (said[-1].seconds or math.inf) > SLOW_WORDS):
        with variables(result.peer) as env:
            said.append(measure.skip(result.peer, what, env))


def leave(result: Result) -> None:
    """Kill a peer's kernel."""
    with variables(result.peer) as env:
        result.left = measure.left(result.peer, env)


def look(result: Result) -> None:
    """Look at a peer in a notebook's kernel."""
    with variables(result.peer) as env:
        result.seen = notebook.look(result.peer, env)


@contextmanager
def variables(peer: Peer) -> Iterator[Mapping[str, str]]:
    """Provide the variables of one program, and a home that ends with it."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as scratch:
        yield measure.settle(peer.python(), environment(scratch), scratch)
