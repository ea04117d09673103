"""Waits of a thread that end by themselves, and those that only another thread ends."""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import sys
import threading
import time

import pytest

from labkit.rank import os_threads


def _is_known() -> bool:
    return bool(os_threads._current(None)) and os_threads.platform.machine() in os_threads._FUTEX


pytestmark = pytest.mark.skipif(not _is_known(), reason="the system does not say")


class Waiting:
    """A thread that waits in ``wait`` until ``end`` is called."""

    def __init__(self, wait, end=lambda: None):
        self.wait, self.end = wait, end
        self.thread = threading.Thread(target=wait, daemon=True)

    def __enter__(self):
        self.thread.start()
        self.task = self.thread.native_id
        return self

    def __exit__(self, *error):
        self.end()
        self.thread.join(10)

    def settles(self, look):
        """Tell whether ``look`` finds it soon: the thread needs a moment to get there."""
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            if look(self.task):
                return True
            time.sleep(0.01)
        return False


def pipe():
    reads, writes = os.pipe()
    return lambda: os.read(reads, 1), lambda: os.write(writes, b"x")


def event(limit=None):
    found = threading.Event()
    return lambda: found.wait(limit), found.set


def lock(limit=-1):
    found = threading.Lock()
    found.acquire()
    return lambda: found.acquire(timeout=limit), found.release


def child():
    process = subprocess.Popen(["sleep", "60"])
    return process.wait, process.kill


FROM_OUTSIDE = {
    "a sleep": lambda: (lambda: time.sleep(1), lambda: None),
    "a read of a pipe": pipe,
    "a child process": child,
    "a lock, for a while": lambda: lock(5),
    "an event, for a while": lambda: event(5),
}


@pytest.mark.parametrize("make", FROM_OUTSIDE.values(), ids=FROM_OUTSIDE)
def test_what_ends_by_itself_or_from_outside(make):
    with Waiting(*make()) as waiting:
        assert waiting.settles(os_threads.waits_for_time)
        assert not os_threads.waits_for_lock(waiting.task)


@pytest.mark.parametrize("make", [lock, event], ids=["a lock", "an event"])
def test_what_only_another_thread_ends(make):
    with Waiting(*make()) as waiting:
        assert waiting.settles(os_threads.waits_for_lock)
        assert not os_threads.waits_for_time(waiting.task)


def test_a_socket_that_is_polled_for_is_neither():
    """As gloo's connections are: another rank sends there."""
    reads, writes = os.pipe()
    with Waiting(lambda: select.select([reads], [], []), lambda: os.write(writes, b"x")) as waiting:
        assert waiting.settles(lambda task: os_threads._current(task)[:1] not in ([], ["running"]))
        assert not os_threads.waits_for_lock(waiting.task)


def test_a_thread_that_runs_waits_for_nothing():
    with Waiting(lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)) as computing:
        assert computing.settles(lambda task: os_threads._current(task) == ["running"])
        assert not os_threads.waits_for_time(computing.task)
        assert not os_threads.waits_for_lock(computing.task)


def test_the_main_thread_is_meant_where_no_other_is():
    code = (
        "import threading, time\n"
        "from labkit.rank import os_threads\n"
        "found = []\n"
        "def look():\n"
        "    while not found: \n"
        "        time.sleep(0.02)\n"
        "        if os_threads.waits_for_lock():\n"
        "            found.append('lock')\n"
        "            done.release()\n"
        "done = threading.Lock()\n"
        "done.acquire()\n"
        "threading.Thread(target=look, daemon=True).start()\n"
        "print(done.acquire(timeout=-1), *found)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "True lock\n", done.stderr


def test_where_the_system_does_not_say_nothing_is_known(monkeypatch):
    monkeypatch.setattr(os_threads.platform, "machine", lambda: "riscv64")
    with Waiting(*lock()) as waiting:
        time.sleep(0.1)
        assert not os_threads.waits_for_lock(waiting.task)
        assert not os_threads.waits_for_time(waiting.task)
    assert not os_threads.waits_for_lock(2**22 + 1)  # a thread that has ended
