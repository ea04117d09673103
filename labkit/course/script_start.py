"""Start a learner's script under torchrun, bounded in time, and see what it trains on: on one node,
or on two nodes that this machine simulates, with an agent of torchrun for each."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..base import interrupts, times
from ..base.errors import Deadlock, Interrupted, RankDied
from ..notebook import live
from ..notebook.show import plain
from ..runtime.torchrun import Ended, Job, Raised
from ..wire.processes import free_port
from ..wire.protocol import TRAINING, Asked
from ..wire.state import describe_exit
from . import material
from .exercise import Failed

#: A line of a traceback that names a place: the line below it is the code.
_PLACE = re.compile(r'^  File "([^"]+)", line (\d+)')
#: For two agents that stand for two nodes. Without the first, processes that are started again
#: can find addresses of those before them; the others keep them on this machine.
_NODES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
_INSIDE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "PET_LOCAL_ADDR": "localhost"}
#: How often torchrun may start the processes of a node again.
RESTARTS = 2


class StartFailed(Exception):
    """Say that a start of a script did not end as it should.

    ``failed`` stands in the place of what was to be found, ``notes`` are for the learner, and
    ``waited`` is what was said of ranks that were blocked.
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


def environment() -> dict[str, str]:
    """Return the variables of every start, and of the process that it is compared with.

    A script beside the notebook finds modules in ``scripts/``. A process has one thread, as
    torchrun sets it for several: two would add up in a different order, and on busy cores they
    spin while one of them waits for a core (twice the processor time was seen).
    """
    folders = [str(material.file("scripts")), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders)), "OMP_NUM_THREADS": "1"}


def start(
    script: Path,
    processes: int,
    words: Sequence[str],
    folder: Path,
    seconds: float,
    kill: tuple[int, int] | None = None,
) -> list[Trained]:
    """Start a script on some processes under torchrun, wait until nothing is left of it, and return
    what each process has told, for which there is an empty folder.

    ``kill`` is a rank and a step: the process is killed by SIGKILL as it comes to that step, and
    the run has to end after that, with an error; it has to end well otherwise, else StartFailed is
    raised, or Interrupted if the learner stops it.
    """
    line = ["--standalone", f"--nproc-per-node={processes}", str(script), *words]
    ends, killed = _run(script, line, {}, folder, seconds, kill)
    if not killed:
        _check(ends, script)
    return [Trained.read(folder, rank) for rank in range(processes)]


def start_nodes(
    script: Path, words: Sequence[str], folder: Path, seconds: float, kill: tuple[int, int]
) -> list[Trained]:
    """Start a script on two nodes with one process each, and kill one, which torchrun starts again;
    return what the processes have told, in all their lives. All else is as in :func:`start`.
    """
    inside = _INSIDE if any(name == "lo" for _, name in socket.if_nameindex()) else {}
    line = ["--nnodes=2", "--nproc-per-node=1", f"--max-restarts={RESTARTS}", "--rdzv-backend=c10d"]
    line += [f"--rdzv-endpoint=localhost:{free_port()}", str(script), *words]
    ends, _ = _run(script, line, {**_NODES, **inside}, folder, seconds, kill, nodes=2)
    _check(ends, script)
    return [Trained.read(folder, rank) for rank in range(2)]


def _run(
    script: Path,
    line: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    seconds: float,
    kill: tuple[int, int] | None,
    nodes: int = 1,
) -> tuple[list[Ended], bool]:
    """Run torchrun, once for each node; return how that ended, and whether a process was killed."""
    told = {TRAINING: Asked(str(folder), *(kill or ())).encoded()}
    variables = {**environment(), **told, **variables}
    deadline = time.monotonic() + seconds
    killed = False
    alone_since: float | None = None  # a node, because the other has ended
    with interrupts.shielded(), contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(Job(line, None, script.name, variables)) for _ in range(nodes)]
        shown = live.Live(live.screen() if nodes == 1 else None)
        stack.callback(shown.clear, wait=True)

        def look() -> None:
            nonlocal killed, alone_since
            now = time.monotonic()
            if alone_since is None and any(job.has_ended() for job in jobs):
                alone_since = now
            if now > deadline or now > (alone_since or now) + times.NODE_ALONE.seconds():
                raise TimeUp
            if kill is not None and not killed and Trained.read(folder, kill[0]).held:
                killed = any(_kill(job, kill[0]) for job in jobs)
            first = jobs[0]
            shown.offer(first.workers.texts, first.watch.states, first.watch.suspicion())

        ends = []
        for job in jobs:
            try:
                ends.append(job.end(job.follow(look, times.SUSPECT_SCRIPT if nodes == 1 else None)))
            except TimeUp:
                if alone_since is None:
                    raise _late(jobs, seconds) from None
                ends.append(job.end(None))
    for ended in ends:
        if isinstance(ended.error, Interrupted):
            raise ended.error
    return ends, killed


def _check(ends: Sequence[Ended], script: Path) -> None:
    """Raise the error of a run, if there is one: of several that which says most."""
    if failed := [ended for ended in ends if ended.error is not None]:
        raise _failed(min(failed, key=_is_consequence), script)


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
    """Return where the processes were when the time was up."""
    found = sorted((s for job in jobs for s in job.watch.states()), key=lambda s: s.rank)
    states = [f"rank {state.rank}: {plain(state.describe())}" for state in found]
    failed = Failed("TimedOut", f"stopped after {seconds:g} s")
    return StartFailed(failed, states, "\n".join([failed.text(), *states]))


def _failed(ended: Ended, script: Path) -> StartFailed:
    """Turn the error of a run into what stands for a value, and what the learner reads; raise it if
    it is none of the script's."""
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
