"""A forked child leaves what its parent has left uncollected alone, and ends with SIGTERM."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading

import pytest

from labkit.rank import children as forks

#: Two cycles are left: one before the fork, one after it in either process. Each tells when it is
#: collected.
SCRIPT = """
import gc, os
from labkit.rank import children as forks

class Cycle:
    def __init__(self, name):
        self.own, self.name = self, name
    def __del__(self):
        os.write(1, f"{who} collects {self.name}, ".encode())

who = "rank"
forks.install()
forks.install()
gc.collect()
gc.{before}()
Cycle("old")
child = os.fork()
if not child:
    who = "child"
    Cycle("new")
    gc.collect()
    os.write(1, f"enabled: {gc.isenabled()}, ".encode())
    os._exit(0)
os.waitpid(child, 0)
Cycle("new")
os.write(1, f"enabled: {gc.isenabled()}, ".encode())
gc.collect()
os._exit(0)
"""


def run(script: str) -> str:
    """Run a script in a process of its own; return what it wrote."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(("before", "enabled"), [("enable", True), ("disable", False)])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_collects_only_what_it_made(before, enabled):
    script = SCRIPT.replace("{before}", before)
    assert run(script) == (
        f"child collects new, enabled: {enabled}, "
        f"enabled: {enabled}, rank collects old, rank collects new, "
    )


#: A child that gets SIGTERM as it begins; the rank's handler would let it go on.
ENDED = """
import os, signal
from labkit.rank import children as forks

def rank_ends(*_):
    os.write(1, b"the rank's handler, ")

def users(*_):
    os.write(1, b"the user's handler, ")

def end_me():
    os.kill(os.getpid(), signal.SIGTERM)

signal.signal(signal.SIGTERM, rank_ends)
os.register_at_fork(after_in_child=end_me)  # the first thing that the child does
forks.install()
{before}
child = os.fork()
if not child:
    os.write(1, b"goes on, ")
    os._exit(0)
os.write(1, b"%d, " % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.kill(os.getpid(), signal.SIGTERM)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", "-15, the rank's handler, "),
        (
            "signal.signal(signal.SIGTERM, users)",
            "the user's handler, goes on, 0, the user's handler, ",
        ),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "goes on, 0, "),
    ],
    ids=["the rank's", "the user's", "ignored"],
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_ends_with_sigterm_from_its_first_moment_on(before: str, said: str) -> None:
    script = ENDED.replace("{before}", before)
    assert run(script) == said


def test_garbage_is_collected_again_when_two_threads_have_forked_at_once() -> None:
    assert gc.isenabled()
    begun, other = threading.Event(), threading.Event()

    def fork() -> None:
        forks._pause()
        begun.set()
        other.wait(20)
        forks._go_on()

    thread = threading.Thread(target=fork, daemon=True)
    thread.start()
    assert begun.wait(20)
    forks._pause()
    other.set()
    thread.join(20)
    assert not gc.isenabled()
    forks._go_on()
    assert gc.isenabled()
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
