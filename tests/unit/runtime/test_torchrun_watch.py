"""The workers of torchrun as the watchdog sees them; here threads of this process play them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest

from labkit.base.errors import Deadlock, Interrupted, SuspectedDeadlock
from labkit.runtime.torchrun_watch import Watch, deadlock, stopped
from labkit.wire.encoding import encode
from labkit.wire.protocol import SOCKET, Hello
from labkit.wire.requests import AskSample, Watched
from labkit.wire.samples import Group, Issuer, Sample, Wait

KEY = ("0", (0, 1))


def sends(rank, issuers=()):
    """Return what a rank says that waits in a send to the other one."""
    peer = 1 - rank
    wait = Wait("send", ((KEY, 1),), peer=peer, me=rank, where="In[7], line 3", line="dist.send()")
    group = Group(KEY, 0, {}, {("send", peer, 0): 1}, 0)
    return Sample(rank, "waiting", True, wait, (1,), {KEY: group}, issuers=issuers)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="t") as name:
        yield Path(name)


@pytest.fixture
def watch(folder):
    made = Watch(folder)
    yield made
    made.close()  # ends the lines, so that those who play workers end too


def play(folder, sample, *, attempt=0, pid=None):
    """Connect as a worker that answers each question with a sample."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(str(folder / SOCKET))
    hello = encode(Hello(sample.rank, 2, attempt, pid or os.getpid()))
    line.sendall(json.dumps(hello).encode() + b"\n")

    def answer():
        with line.makefile("rb") as lines, contextlib.suppress(BrokenPipeError):
            for text in lines:
                asked = json.loads(text)
                sampled = asked["request"] == AskSample.request
                content = encode(sample if sampled else Watched(sample))
                line.sendall(json.dumps({"id": asked["id"], "content": content}).encode() + b"\n")

    threading.Thread(target=answer, daemon=True).start()
    return line


def find(watch, seconds):
    """Look until there is a deadlock, or for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (case := watch.poll(0.05)) is not None:
            return case
    return None


def test_without_workers_nothing_is_known(watch):
    assert watch.poll(0.01) is None
    assert (watch.states(), watch.suspicion(), watch.waits()) == ([], None, {})


def test_workers_that_wait_for_one_another_are_a_deadlock(folder, watch):
    lines = [play(folder, sends(rank)) for rank in (0, 1)]
    case = find(watch, 20)
    assert case is not None
    assert case.stuck == {0, 1}
    error = deadlock(case)
    assert type(error) is Deadlock
    assert "rank 1 waits in send to rank 0 at In[7], line 3" in str(error)
    assert [state.state for state in watch.states()] == ["waiting", "waiting"]
    for line in lines:
        line.close()


def test_one_that_has_not_come_may_do_anything(folder, watch):
    play(folder, sends(0))
    while not watch.waits():
        watch.poll(0.01)
    assert find(watch, 1.0) is None
    assert watch.suspicion() is None
    assert [state.rank for state in watch.states()] == [0]


def test_only_the_last_attempt_counts(folder, watch):
    play(folder, sends(0)), play(folder, sends(1))
    play(folder, sends(0), attempt=1, pid=os.getppid())
    while watch.pid(0) != os.getppid():
        watch.poll(0.01)
    assert find(watch, 0.5) is None


def test_what_may_be_is_suspected_only(folder, watch):
    thread = (Issuer("a thread of rank {rank} is alive: Thread-3 (tick)"),)
    for rank in (0, 1):
        play(folder, sends(rank, thread))
    while (suspicion := watch.suspicion()) is None:
        assert watch.poll(0.05) is None
    assert find(watch, 1.0) is None
    assert type(deadlock(suspicion.case)) is SuspectedDeadlock
    error = stopped(suspicion)
    assert isinstance(error, Interrupted)
    assert "Suspected deadlock: ranks 0–1 wait for one another." in str(error)
    assert "Suspected" not in str(stopped(None))


def test_a_closed_line_of_a_process_that_lives_is_no_end(folder, watch):
    play(folder, sends(0))
    play(folder, sends(1)).shutdown(socket.SHUT_RDWR)
    assert find(watch, 2.0) is None
