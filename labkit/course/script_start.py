"""Start a learner's script under torchrun, bounded in time, and see what it trains on.

On one node, or on two nodes that this machine plays: an agent of torchrun for each.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..base import interrupts, times
from ..errors import Deadlock, Interrupted, RankDied
from ..notebook import live
from ..notebook.show import plain
from ..runtime.torchrun import Ended, Job, Raised
from ..wire.processes import free_port
from ..wire.protocol import TRAINING, Asked
from ..wire.state import describe_exit
from .exercise import Failed

#: A line of a traceback that names a place: the line below it is the code.
_PLACE = re.compile(r'^  File "([^"]+)", line (\d+)')
#: For two agents that play two nodes. Without the first, processes that are started again can find
#: addresses of those before them; the others keep them on this machine.
_NODES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
_INSIDE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "PET_LOCAL_ADDR": "localhost"}
#: How often torchrun may start the processes of a node again.
RESTARTS = 2


class StartFailed(Exception):
    """Say that a start of a script did not end as it should.

    ``failed`` stands in the place of what was to be found, ``notes`` are for the learner, and
    ``waited`` is what was said of ranks that waited in vain.
    """

    def __init__(self, failed: Failed, notes: Sequence[str], waited: str = "") -> None:
        super().__init__(str(failed))
        self.failed = failed
        self.notes = list(notes)
        self.waited = waited


class TimeUp(Exception):
    """Say that a start has used its time."""


@dataclass
class Trained:
    """What one process of a script has told of itself."""

    folder: Path
    rank: int
    steps: list[list[int]] = field(default_factory=list)  #: the rows of each step
    saved: list[str] = field(default_factory=list)  #: what ``torch.save`` was called with
    held: bool = False  #: it waits to be killed

    @classmethod
    def read(cls, folder: Path, rank: int) -> Trained:
        """Read what it has told so far."""
        told = cls(folder, rank)
        path = folder / f"{rank}.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            what = json.loads(line)
            if "step" in what:
                told.steps.append(what["step"])
            elif "saved" in what:
                told.saved.append(what["saved"])
            else:
                told.held = True
        return told

    @cached_property
    def weights(self) -> Any:
        """Its weights at the end, one vector; None if it has told none."""
        import torch

        path = self.folder / f"{self.rank}.pt"
        return torch.load(path, weights_only=True) if path.exists() else None


def start(
    script: Path,
    processes: int,
    words: Sequence[str],
    folder: Path,
    seconds: float,
    kill: tuple[int, int] | None = None,
) -> list[Trained]:
    """Start a script under torchrun and wait until nothing is left of it.

    Parameters
    ----------
    script
        The learner's file.
    processes
        How many processes.
    words
        The arguments of the script.
    folder
        An empty folder for what the processes tell.
    seconds
        The time that it has.
    kill
        A rank and a step: the process is killed by SIGKILL as it comes to that step, and the run
        has to end after that, with an error; it has to end well otherwise.

    Returns
    -------
    list of Trained
        What each process has told.

    Raises
    ------
    StartFailed
        If it does not end as it should.
    Interrupted
        If the learner stops it.
    """
    asked = Asked(str(folder), *(kill or ()))
    line = ["--standalone", f"--nproc-per-node={processes}", str(script), *words]
    deadline = time.monotonic() + seconds
    killed = False
    with (
        interrupts.held(),
        Job(line, None, script.name, {TRAINING: asked.encoded()}) as job,
    ):
        shown = live.Live(live.screen())

        def look() -> None:
            nonlocal killed
            if time.monotonic() > deadline:
                raise TimeUp
            if kill is not None and not killed and Trained.read(folder, kill[0]).held:
                killed = _kill(job, kill[0])
            shown.offer(job.workers.texts, job.watch.states, job.watch.suspicion())

        try:
            ended = job.end(job.follow(look, times.SUSPECT_SCRIPT))
        except TimeUp:
            raise _late([job], seconds) from None
        finally:
            shown.clear(wait=True)
    if isinstance(ended.error, Interrupted):
        raise ended.error
    if ended.error is not None and not killed:
        raise _failed(ended, script)
    return [Trained.read(folder, rank) for rank in range(processes)]


def start_nodes(
    script: Path, words: Sequence[str], folder: Path, seconds: float, kill: tuple[int, int]
) -> list[Trained]:
    """Start a script on two nodes with one process each, and kill one, which torchrun starts again.

    Parameters
    ----------
    script, words, folder, seconds
        As in :func:`start`.
    kill
        A rank and a step: its process is killed by SIGKILL as it comes to that step, once.

    Returns
    -------
    list of Trained
        What the processes have told, in all their lives.

    Raises
    ------
    StartFailed
        If a node does not end as it should.
    Interrupted
        If the learner stops it.
    """
    inside = _INSIDE if any(name == "lo" for _, name in socket.if_nameindex()) else {}
    variables = {TRAINING: Asked(str(folder), *kill).encoded(), **_NODES, **inside}
    line = ["--nnodes=2", "--nproc-per-node=1", f"--max-restarts={RESTARTS}", "--rdzv-backend=c10d"]
    line += [f"--rdzv-endpoint=localhost:{free_port()}", str(script), *words]
    deadline = time.monotonic() + seconds
    killed = False
    with interrupts.held(), contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(Job(line, None, script.name, variables)) for _ in range(2)]

        alone_since: float | None = None  # a node, because the other has ended

        def look() -> None:
            nonlocal killed, alone_since
            now = time.monotonic()
            if alone_since is None and any(job.has_ended() for job in jobs):
                alone_since = now
            if now > deadline or now > (alone_since or now) + times.NODE_ALONE.seconds():
                raise TimeUp
            if not killed and Trained.read(folder, kill[0]).held:
                killed = any(_kill(job, kill[0]) for job in jobs)

        ends = []
        for job in jobs:
            try:
                ends.append(job.end(job.follow(look, None)))
            except TimeUp:
                if alone_since is None:
                    raise _late(jobs, seconds) from None
                ends.append(job.end(None))
    for ended in ends:
        if isinstance(ended.error, Interrupted):
            raise ended.error
    failed = [ended for ended in ends if ended.error is not None]
    if failed:
        raise _failed(min(failed, key=_is_consequence), script)
    return [Trained.read(folder, rank) for rank in range(2)]


def _is_consequence(ended: Ended) -> tuple[bool, bool]:
    """Sort the ends of nodes: those first that say more than that the other node has gone."""
    own = any(not raised.is_consequence for raised in ended.raised.values())
    return not isinstance(ended.error, RankDied), not own


def _kill(job: Job, rank: int) -> bool:
    pid = job.watch.pid(rank)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    return pid is not None


def _late(jobs: Sequence[Job], seconds: float) -> StartFailed:
    """Say where the processes were when the time was up."""
    found = sorted((s for job in jobs for s in job.watch.states()), key=lambda s: s.rank)
    states = [f"rank {state.rank}: {plain(state.describe())}" for state in found]
    failed = Failed("TimedOut", f"stopped after {seconds:g} s")
    return StartFailed(failed, states, "\n".join([failed.text(), *states]))


def _failed(ended: Ended, script: Path) -> StartFailed:
    """Turn the error of a run into what stands for a value, and what the learner reads.

    Raises
    ------
    LabError
        The error itself, if it is none of the script's.
    """
    error = ended.error
    assert error is not None
    if isinstance(error, Deadlock):
        said = "\n".join(" ".join(plain(block).split()) for block in error.blocks)
        return StartFailed(Failed("Deadlock", "waited in vain"), error.blocks, said)
    if not isinstance(error, RankDied):
        raise error
    told = sorted(ended.raised.items(), key=lambda item: (item[1].is_consequence, item[0]))
    if own := [raised for rank, raised in told if rank in ended.failed]:
        first = own[0]
        places = _places(first, script)
        failed = Failed(first.type, first.message, tuple(code for _, code in places))
        return StartFailed(failed, [*error.blocks, *(f"  {p}:  {code}" for p, code in places)])
    code = next(iter(ended.failed.values()))
    return StartFailed(Failed("Died", describe_exit(code)), error.blocks)


def _places(raised: Raised, script: Path) -> list[tuple[str, str]]:
    """Return where in the script an error came through, outermost first, with the line there."""
    pairs = ((_PLACE.match(line), below) for line, below in pairwise(raised.text.split("\n")))
    return [
        (f"{script}, line {p[2]}", code.strip()) for p, code in pairs if p and p[1] == str(script)
    ]
