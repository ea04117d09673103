"""Ask a peer's program: how fast it is, what it says of a skipped collective, what it leaves."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import statistics
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ..child import Child, is_alive, marked
from .peer import Peer
from .processes import listeners, off_loopback, processor_time

START_SECONDS = 150.0  #: for one start; sixteen times torch on two cores is slow
WARM_UP = 5
CALLS = 50
CALLS_SECONDS = 20  #: a peer whose calls are slow makes fewer
SAY_SECONDS = 60.0  #: a person who has heard nothing until then has given up
REST_SECONDS = 1.5  #: of silence, after which a message is complete
LOOKS = (5.0, 30.0)  #: seconds after the kill
RANKS = 4  #: for what is done once

#: What a line has that says something is wrong. An echo of the cell, a greeting or the name of a
#: rank in front of what it prints is none.
WRONG = re.compile(
    r"error|exception|timed?[ -]?out|timeout|deadlock|stuck|hang|hung|missing|skipped"
    r"|waits? (in|for)|waiting|without it|closed by peer|not (called|arrived|responding)",
    re.IGNORECASE,
)
#: What makes it useful: who, or in which call. A bare timeout is granted.
USEFUL = re.compile(
    r"\branks?\b|all_?reduce|collective|worker|timed?[ -]?out|timeout|by peer", re.IGNORECASE
)
#: A frame of a traceback, whose file may be called "errors".
FRAME = re.compile(r'.*\bFile "')
#: Colours, which a terminal eats.
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Session:
    """One start, and what was called then."""

    start: float  #: seconds to the first all_reduce on rank 0
    start_processors: float  #: seconds that all processes ran meanwhile
    calls: list[float] = field(default_factory=list)  #: seconds of each empty cell
    call_processors: float | None = None  #: seconds that all processes run for one


def session(peer: Peer, ranks: int, env: Mapping[str, str]) -> Session:
    """Start a peer, and call an empty cell if it has such.

    Ranks that end with their function wait in it at first: one that has ended has no processor
    time any more.
    """
    with Child(peer.command(ranks, "idle"), seconds=START_SECONDS, env=env) as child:
        began, ran = begin(peer, child)
        start = float(child.answer()) - began
        start_processors = processor_time(marked(child.token)) - ran
        if peer.stays and peer.calls:
            return Session(start, start_processors, *call(child))
        child.process.kill()
    if not peer.calls:
        return Session(start, start_processors)
    with Child(peer.command(ranks, "start"), seconds=START_SECONDS, env=env) as child:
        child.answer()
        return Session(start, start_processors, *call(child))


def begin(peer: Peer, child: Child) -> tuple[float, float]:
    """Return the moment at which a start begins, and the seconds that processors ran before.

    A Jupyter server is there before any notebook is opened, so its own start does not count.
    """
    if not peer.server:
        return child.started, 0.0
    child.answer()
    ran = processor_time(marked(child.token))
    return float(child.ask("start")), ran


def call(child: Child) -> tuple[list[float], float]:
    """Call an empty cell often; return each call's seconds, and what processors run for one."""
    child.ask(f"calls {WARM_UP} {CALLS_SECONDS}")
    processes = marked(child.token)
    before = processor_time(processes)
    calls = child.ask(f"calls {CALLS} {CALLS_SECONDS}")
    return calls, (processor_time(processes) - before) / len(calls)


@dataclass(frozen=True)
class Said:
    """What a person hears of a skipped collective."""

    seconds: float | None  #: from the call to the first useful line; None: nothing in SAY_SECONDS
    words: str = ""  #: the line that says most
    text: str = ""  #: all that was said


def skip(peer: Peer, what: str, env: Mapping[str, str]) -> Said:
    """Leave a collective out on rank 1 of four and wait until something is said about it."""
    heard: list[tuple[float, str]] = []
    # A person sits before a terminal or a notebook, where lines come at once.
    env = {**env, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    with Child(peer.command(RANKS, what), seconds=START_SECONDS, env=env, heard=heard) as child:
        begin(peer, child)
        child.answer()
        moment = float(child.ask("skip") if peer.stays else child.answer())
        while time.time() < moment + SAY_SECONDS and not first_useful(heard, moment):
            if child.process.poll() is not None and is_silent(heard, moment):
                break
            time.sleep(0.02)
        if first_useful(heard, moment):
            while not is_silent(heard, moment):
                time.sleep(0.05)
        said = judge(heard, moment)
        child.process.kill()
    return said


def is_silent(heard: list[tuple[float, str]], moment: float) -> bool:
    """Return whether nothing has been said for a while."""
    return time.time() - max([moment, *(when for when, _ in heard)]) > REST_SECONDS


def first_useful(heard: list[tuple[float, str]], moment: float) -> float | None:
    """Return when the first line came that says what is wrong, None if there is none yet.

    What is wrong may stand on one line and where on another: a traceback is read as a whole.
    """
    since = [(when, COLOURS.sub("", line)) for when, line in list(heard) if when >= moment]
    wrong = [when for when, line in since if WRONG.search(line)]
    useful = [when for when, line in since if USEFUL.search(line)]
    return max(wrong[0], useful[0]) if wrong and useful else None


def judge(heard: list[tuple[float, str]], moment: float) -> Said:
    """Return what was said since a moment."""
    lines = [COLOURS.sub("", line).rstrip() for when, line in heard if when >= moment]
    lines = [line for line in lines if line.strip()]
    text = "\n".join(lines)[-6000:]
    when = first_useful(heard, moment)
    if when is None:
        return Said(None, lines[-1].strip() if lines else "", text)
    wrong = [line.strip() for line in lines if WRONG.search(line) and not FRAME.match(line)]
    best = [line for line in wrong if USEFUL.search(line)] or wrong
    return Said(when - moment, best[0] if best else lines[-1].strip(), text)


@dataclass(frozen=True)
class Left:
    """What is there while four ranks are idle, and after their notebook's kernel was killed.

    A Jupyter server, if the kernel has one, counts as little as it does for other notebooks.
    """

    processes: int  #: while it lives; its own among them
    listeners: list[str]
    seconds: float | None  #: until nothing was left; None if something was at the last look
    #: seconds after the kill: processes, "started since" of these, listeners, off loopback
    after: dict[str, dict[str, int]]
    names: list[str] = field(default_factory=list)  #: of the processes at the last look


def left(peer: Peer, env: Mapping[str, str]) -> Left:
    """Kill the notebook's kernel of four idle ranks and look at what stays.

    The kernel is the program itself, unless that has started a Jupyter server.
    """
    with Child(peer.command(RANKS, "idle"), seconds=START_SECONDS, env=env) as child:
        begin(peer, child)
        child.answer()
        kernel, beside = child.process.pid, set()
        if peer.server:
            pids = child.ask("kernel")
            kernel, beside = pids["kernel"], set(pids["beside"])
        processes = [process for process in everyone(child) if process.pid not in beside]
        addresses = listeners(processes)
        os.kill(kernel, signal.SIGKILL)
        killed = time.monotonic()
        gone, after, rest = None, {}, []
        for look in LOOKS:
            # A server starts a kernel that has died anew: what is gone may come again.
            while time.monotonic() - killed < look and (gone is None or peer.server):
                if living(processes, child.token, beside):
                    gone = None
                elif gone is None:
                    gone = time.monotonic() - killed
                time.sleep(0.05)
            rest = living(processes, child.token, beside) if gone is None else []
            there = listeners(rest)
            after[f"{look:g}"] = {
                "processes": len(rest),
                "started since": len(set(rest) - set(processes)),
                "listeners": len(there),
                "off loopback": len(off_loopback(there)),
            }
        names = sorted(map(name_of, rest))
        for process in living(processes, child.token):
            with contextlib.suppress(psutil.Error):
                process.kill()
    return Left(len(processes), addresses, gone, after, names)


def name_of(process: psutil.Process) -> str:
    """Return the beginning of a process's command."""
    try:
        return " ".join([process.name(), *map(os.path.basename, process.cmdline()[1:3])])
    except psutil.Error:
        return "gone"


def everyone(child: Child) -> list[psutil.Process]:
    """Return a program's processes: those it started, and those that carry its token."""
    here = psutil.Process(child.process.pid)
    return list({here, *here.children(recursive=True), *marked(child.token)})


def living(
    processes: list[psutil.Process], token: str, beside: Collection[int] = ()
) -> list[psutil.Process]:
    """Return those of the processes that still run, and those that were started since.

    Leave out those whose numbers are in ``beside``.
    """
    found = {*processes, *marked(token)}
    return [process for process in found if process.pid not in beside and is_alive(process)]


def settle(peer_python: str, env: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Return the variables of one program: its own home and no way to end strangers' processes.

    nbdistributed calls ``pkill`` with patterns that fit other people's processes too. Ray leaves a
    token in the home and a session in its folder; a Unix socket's path must stay short.
    """
    folder = Path(scratch) / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("pkill", "killall"):
        stub = folder / name
        stub.write_text("#!/bin/sh\nexit 1\n")
        stub.chmod(0o755)
    path = os.pathsep.join([str(folder), str(Path(peer_python).parent), env.get("PATH", "")])
    return {**env, "PATH": path, "HOME": scratch, "TMPDIR": scratch, "RAY_TMPDIR": scratch}


def middle(values: list[float]) -> float | None:
    """Return the median; None of nothing."""
    return statistics.median(values) if values else None
