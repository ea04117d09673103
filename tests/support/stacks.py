"""Show in C++ where ranks hang when a test has failed: a pytest plugin, which ``make test`` loads.

A rank that answers no question holds Python's lock in C++, and only a debugger can say where. That
happens once in many thousands of tests; what is not seen then is not seen for weeks.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import psutil
import pytest

#: Of x86-64: how an idle rank waits for its next cell (epoll_wait, poll, epoll_pwait).
IDLE = {"232", "7", "281"}
#: Seconds for one process: the debugger reads all of torch's symbols.
SECONDS = 120
#: Lines of each process that are shown.
MOST = 150


def is_blocked(process: psutil.Process) -> bool:
    """Return whether a process' main thread waits for something else than the next request."""
    with contextlib.suppress(OSError, IndexError, psutil.Error):
        if not any("labkit.launch" in word for word in process.cmdline()):
            return False
        with open(f"/proc/{process.pid}/task/{process.pid}/syscall") as file:
            return file.read().split()[0] not in {*IDLE, "running"}
    return False


def native(pid: int) -> str:
    """Return the C++ stacks of a process' threads, as gdb prints them."""
    command = ["gdb", "--pid", str(pid), "--batch", "-ex", "thread apply all backtrace 25"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    _, thread, rest = done.stdout.partition("\nThread ")
    begun = f"{thread.lstrip()}{rest}" or done.stderr
    short = re.sub(r"0x[0-9a-f]{8,} in | from /\S+/(?=[^/\s]+$)", "", begun, flags=re.MULTILINE)
    lines = [line[:160] for line in short.splitlines()]
    return "\n".join(lines[-MOST:])  # the main thread is the last


def blocked_ranks() -> str:
    """Return where the processes below this one hang that do; "" if none does, or without gdb."""
    if shutil.which("gdb") is None:
        return ""
    below = psutil.Process().children(recursive=True)
    blocked = [process.pid for process in below if is_blocked(process)]
    return "\n".join(f"process {pid}:\n{native(pid)}" for pid in blocked)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (found := blocked_ranks()):
        report.sections.append(("where ranks hang", found))
    return report
