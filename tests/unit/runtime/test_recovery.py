"""How ranks are interrupted and freed, in what order and time, and where one is in C code."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from labkit.base import times
from labkit.runtime import control, recovery
from labkit.wire import protocol
from labkit.wire.protocol import RECORD_FOLDER, Frame
from labkit.wire.requests import AskConnections, AskWait, Connections, Count, Shut, Waiting, Wake
from labkit.wire.samples import Wait
from tests.support.virtual_clock import VirtualClock

ALL = range(3)


@pytest.fixture(autouse=True)
def _no_wait_but_by_the_clock(monkeypatch):
    def sleep(seconds):
        raise AssertionError(f"sleeps {seconds} s beside the clock")

    monkeypatch.setattr(time, "sleep", sleep)


class Ranks:
    """Three busy ranks that are only written down, and what is done about them, at which time."""

    def __init__(self, monkeypatch):
        self.clock = VirtualClock()
        self.here: set[int] = set(ALL)  #: whose processes are on this host
        self.stopped: set[int] = set()  #: whose processes are stopped
        self.silent: set[int] = set()  #: that give no answer, the first time
        self.left = set(ALL)  #: that are busy
        self.done: list[tuple[float, str, list[int]]] = []
        monkeypatch.setattr(recovery, "free", self._free)
        monkeypatch.setattr(control, "send_signal", self._send_signal)

    def local_process(self, rank):
        return rank in self.here or None

    def is_stopped(self, rank):
        return rank in self.stopped

    def busy(self):
        return sorted(self.left)

    def ends_at(self, seconds, *ranks):
        self.clock.at(seconds, lambda: self.left.difference_update(ranks))

    def _free(self, cluster, ranks):
        self._note("free", ranks)
        silent, self.silent = self.silent, set()
        return [rank for rank in ranks if rank not in silent]

    def _send_signal(self, cluster, ranks, signum):
        self._note(signum, ranks)

    def _note(self, what, ranks):
        self.done.append((self.clock.time / times.pace.factor, what, list(ranks)))

    def seen(self):
        """Return what was done, with the times as multiples of the pace."""
        return [(pytest.approx(when, abs=1e-6), what, ranks) for when, what, ranks in self.done]


@pytest.fixture
def ranks(monkeypatch, factor):
    return Ranks(monkeypatch)


def test_ranks_are_freed_and_those_beside_them_interrupted(ranks, factor):
    ranks.ends_at(0.3 * factor, 0, 1, 2)
    assert recovery.end(ranks, ranks.busy, [0, 1]) == []
    assert ranks.seen() == [(0, "SIGINT", [2]), (0, "free", [0, 1])]
    assert ranks.clock.time == pytest.approx(0.3 * factor)


def test_one_that_catches_the_error_is_interrupted_and_freed_again(ranks, factor):
    ranks.ends_at(0.1 * factor, 0, 2)
    ranks.ends_at(1.2 * factor, 1)
    assert recovery.end(ranks, ranks.busy, [0, 1]) == []
    assert ranks.seen() == [
        (0, "SIGINT", [2]),
        (0, "free", [0, 1]),
        (0.5, "SIGINT", [1]),
        (0.5, "free", [1]),
        (1.0, "free", [1]),
    ]
    assert ranks.clock.time == pytest.approx(1.2 * factor)


def test_ranks_that_were_seen_to_wait_are_waited_for_longer_than_after_a_stop(ranks, factor):
    ranks.ends_at(0, 0, 2)
    assert recovery.end(ranks, ranks.busy, [1]) == [1]
    free_again = [when for when, what, _ in ranks.done if what == "free"]
    assert free_again == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4], abs=1e-6)
    assert ranks.clock.time == pytest.approx(4.5 * factor)


def test_after_a_stop_somebody_looks_on(ranks, factor):
    ranks.ends_at(0, 0, 2)
    assert recovery.end(ranks, ranks.busy, [1], seen=False) == [1]
    assert ranks.seen()[2:] == [(0.5, "SIGINT", [1]), (0.5, "free", [1])]
    assert ranks.clock.time == pytest.approx(0.9 * factor)


def test_a_rank_that_answers_late_was_seen_to_wait_and_comes_back(ranks, factor):
    """It may be importing a library, or have many beside it."""
    ranks.silent = {1}
    ranks.ends_at(0.1 * factor, 0, 2)
    ranks.ends_at(0.6 * factor, 1)
    assert recovery.end(ranks, ranks.busy, [0, 1]) == []


def test_a_rank_whose_process_is_stopped_holds_nobody(ranks, factor):
    ranks.silent = ranks.stopped = {1}
    ranks.ends_at(0.1 * factor, 0, 2)
    assert recovery.end(ranks, ranks.busy, [0, 1]) == [1]
    assert ranks.clock.time == pytest.approx(0.1 * factor)


def test_after_the_stop_button_one_that_does_not_answer_holds_nobody(ranks, factor):
    ranks.silent = {1}
    ranks.ends_at(0.1 * factor, 0, 2)
    assert recovery.end(ranks, ranks.busy, [0, 1], seen=False) == [1]
    assert ranks.clock.time == pytest.approx(0.1 * factor)


def test_on_another_host_one_may_be_out_of_reach_for_a_moment(ranks, factor):
    ranks.silent, ranks.here = {1}, {0, 2}
    ranks.ends_at(0.1 * factor, 0, 2)
    ranks.ends_at(0.6 * factor, 1)
    assert recovery.end(ranks, ranks.busy, [0, 1], seen=False) == []


def test_ranks_that_answer_are_freed_without_a_wait(monkeypatch):
    """A receive from any rank gets a byte, a wait for a thread an interrupt; then all is shut."""
    waits = [Wait("recv_any", ((("0", (0, 1)), 1),)), Wait("thread")]
    clock, done = VirtualClock(), list[object]()
    cluster = SimpleNamespace(clock=clock, size=2, deaths={}, local_process=lambda rank: None)

    def ask(cluster, questions, within=None):
        done.append(sorted((rank, type(question)) for rank, question in questions.items()))
        answer = {
            AskWait: lambda rank: Waiting(waits[rank]),
            AskConnections: lambda rank: Connections(()),
        }
        return {r: answer.get(type(q), lambda rank: Count(1))(r) for r, q in questions.items()}

    monkeypatch.setattr(control, "ask", ask)
    monkeypatch.setattr(control, "send_signal", lambda c, ranks, *_: done.append(ranks))
    assert recovery.free(cluster, [0, 1]) == [0, 1]
    assert done == [
        [(0, AskWait), (1, AskWait)],
        [0],
        [(1, Wake)],
        [1],
        [(0, AskConnections), (1, AskConnections)],
        [(0, Shut), (1, Shut)],
    ]
    assert clock.time == 0


# -- the stop button ------------------------------------------------------------------------------


def test_ranks_that_an_interrupt_ends_are_not_freed(ranks, factor):
    ranks.ends_at(0.2 * factor, 0, 1, 2)
    assert recovery.interrupt(ranks, ranks.busy, "SIGTERM") == ([], [])
    assert ranks.seen() == [(0, "SIGTERM", [0, 1, 2])]
    assert ranks.clock.time == pytest.approx(0.2 * factor)


def test_those_that_it_does_not_end_are_freed(ranks, factor):
    ranks.ends_at(0.2 * factor, 0)
    ranks.ends_at(0.4 * factor, 1, 2)
    assert recovery.interrupt(ranks, ranks.busy, "SIGINT") == ([1, 2], [])
    assert ranks.seen() == [
        (0, "SIGINT", [0, 1, 2]),
        (0.25, "SIGINT", []),
        (0.25, "free", [1, 2]),
    ]


def test_ranks_that_nothing_ends_are_left_after_a_bounded_time(ranks, factor):
    assert recovery.interrupt(ranks, ranks.busy, "SIGINT") == ([0, 1, 2], [0, 1, 2])
    assert ranks.clock.time == pytest.approx((0.25 + 0.5 + 0.4) * factor)


def test_ranks_that_have_seen_the_interrupt_are_waited_for(ranks, factor):
    ranks.ends_at(1.5 * factor, 1)
    assert recovery.wait_for(ranks, ranks.busy, [1]) == [0, 2]
    assert ranks.clock.time == pytest.approx(1.5 * factor)
    assert recovery.wait_for(ranks, ranks.busy, [2]) == [0, 2]
    assert ranks.clock.time == pytest.approx(3.5 * factor)


RE = Frame("/usr/lib/python3.11/re/__init__.py", 166, "match")
CELL = Frame("In[3]", 2, "<module>")


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([RE, CELL], "re.match, In[3], line 2"),
        ([Frame("In[3]", 5, "work"), CELL], "In[3], line 5"),
        ([Frame("/lib/statistics.py", 9, "mean"), RE], "statistics.mean"),
        ([Frame("/tmp/ipykernel_77/12.py", 3, "work")], "work, line 3"),
        ([Frame("/tmp/ipykernel_77/12.py", 3, "<module>")], "line 3"),
        (
            [RE, Frame("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed"), CELL],
            "import, In[3], line 2",
        ),
        ([Frame("<ipython-input-1-97f2>", 1, "<lambda>")], "<lambda>, line 1"),
    ],
)
def test_a_place_is_named_after_its_function_and_its_cell(frames, place):
    assert recovery.describe(frames) == place


class Cluster:
    """This process in the place of rank 1; rank 0 is out of reach."""

    def __init__(self, folder):
        self.launcher = SimpleNamespace(record_folder=lambda: str(folder))
        self.places = [SimpleNamespace(pid=0), SimpleNamespace(pid=os.getpid())]
        self.clock = VirtualClock()
        self.deaths: dict[int, int] = {}

    def signal(self, rank, signum):
        os.kill(self.places[rank].pid, signum)
        return True


@pytest.mark.skipif(protocol.STACK_SIGNAL is None, reason="this system has no such signals")
@pytest.mark.parametrize("seen", [False, True])
def test_a_rank_writes_where_it_is_unless_its_python_has_seen_the_interrupt(tmp_path, seen):
    assert protocol.STACK_SIGNAL is not None
    path = protocol.stack_path(tmp_path, os.getpid())
    with open(path, "ab", buffering=0) as file:
        faulthandler.register(protocol.STACK_SIGNAL, file=file, all_threads=False)
        try:
            cluster = Cluster(tmp_path)
            if seen:
                file.write(protocol.SEEN.encode())
            in_c = recovery.places_in_c(cluster, [0, 1])
        finally:
            faulthandler.unregister(protocol.STACK_SIGNAL)
            signal.signal(protocol.STACK_SIGNAL, signal.SIG_DFL)
    assert in_c == ({} if seen else {1: "test_recovery.signal"})


def test_a_lab_without_a_folder_knows_nothing():
    cluster = SimpleNamespace(launcher=SimpleNamespace(record_folder=str))
    assert recovery.places_in_c(cluster, [0]) == {}


def test_a_rank_that_writes_nothing_is_waited_for_longer_on_a_busy_machine(
    tmp_path, monkeypatch, factor
):
    monkeypatch.setattr(protocol, "STACK_SIGNAL", signal.SIGUSR1)
    cluster = Cluster(tmp_path)
    monkeypatch.setattr(cluster, "signal", lambda rank, signum: True)
    Path(protocol.stack_path(tmp_path, os.getpid())).touch()
    assert recovery.places_in_c(cluster, [1]) == {}
    assert cluster.clock.time == pytest.approx(0.2 * factor, abs=times.STACK_LOOK)


CRASHES = {
    "import ctypes\ndef work():\n    ctypes.string_at(0)\nwork()": (
        "Rank 1 crashed in ctypes.string_at, In[7], line 3."
    ),
    "import os\nos.abort()": "Rank 1 crashed in In[7], line 2.",
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)": "",
    "import os\nif os.fork() == 0: os.abort()\nos.wait()\nraise SystemExit(3)": "",
}


@pytest.mark.parametrize("code", CRASHES)
def test_a_rank_that_crashes_says_where(tmp_path, code):
    rank = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from labkit.rank import interrupts; interrupts.write_stacks()\n"
            "exec(compile(sys.argv[1], 'In[7]', 'exec'))",
            code,
        ],
        env={**os.environ, RECORD_FOLDER: str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    cluster = Cluster(tmp_path)
    cluster.deaths = {0: -signal.SIGSEGV, 1: rank.wait()}
    cluster.places[1].pid = rank.pid
    assert recovery.crashed_in_c(cluster, [1]) == CRASHES[code]
    assert recovery.crashed_in_c(cluster, [0]) == ""


def test_ranks_that_crash_at_one_place_share_a_sentence(tmp_path):
    """A thread that is none of Python's has no stack."""
    cluster = Cluster(tmp_path)
    stack = '\n\nCurrent thread 0x1 (most recent call first):\n  File "In[3]", line 2 in <module>\n'
    cluster.deaths = {0: -signal.SIGSEGV, 1: -signal.SIGSEGV}
    for rank in (0, 1):
        cluster.places[rank].pid = rank
        text = f"{protocol.CRASH}Segmentation fault{stack}"
        Path(protocol.stack_path(tmp_path, rank)).write_text(text)
    assert recovery.crashed_in_c(cluster, [0, 1]) == "Ranks 0–1 crashed in In[3], line 2."
    Path(protocol.stack_path(tmp_path, 0)).write_text(f"{protocol.CRASH}Aborted\n\n")
    assert recovery.crashed_in_c(cluster, [0]) == ""
