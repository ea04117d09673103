"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for it")

#: Starts a child that starts another one, in a session of its own, and ends; prints its number.
CHILD = (
    "import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True); "
    "print(p.pid, flush=True)"
)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_descendants_leave_behind_ends_too() -> None:
    code = (
        "import subprocess, sys, time\n"
        "from labkit.wire.processes import end_descendants, inherit_orphans\n"
        "inherit_orphans()\n"
        f"subprocess.run([sys.executable, '-c', {CHILD!r}])\n"
        "end_descendants()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not is_alive(int(done.stdout))


def test_a_child_ends_with_its_parent() -> None:
    code = (
        "import os, time\n"
        "from labkit.wire.processes import end_with_parent\n"
        "own = os.getpid()\n"
        "if (pid := os.fork()) == 0:\n"
        "    end_with_parent(own)\n"
        "    os.write(1, b'ready\\n')\n"
        "    time.sleep(1000)\n"
        "os.write(1, b'%d\\n' % pid)\n"  # in one piece: the child writes there, too
        "time.sleep(1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        words = [parent.stdout.readline().strip(), parent.stdout.readline().strip()]
        parent.kill()
    (pid,) = (int(word) for word in words if word != "ready")
    deadline = time.monotonic() + 5
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_who_comes_too_late_ends_at_once() -> None:
    code = f"from labkit.wire.processes import end_with_parent; end_with_parent({os.getpid() + 1})"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 1
