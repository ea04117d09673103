"""Labs end with their owner, however it ends, and listen nowhere but on loopback."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest
from jupyter_client.manager import start_new_kernel

import labkit
from tests.conftest import descendants

pytestmark = pytest.mark.slow


def run_cell(client, code, timeout=60):
    """Run a cell in a kernel; return what it printed. Fails on an error."""
    printed = []

    def on_output(message):
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=timeout, output_hook=on_output)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)


@pytest.fixture
def kernel():
    manager, client = start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def start_lab(client):
    """Start a lab in a kernel; return its private folder."""
    return run_cell(
        client, "import labkit; lab = labkit.start(3); print(lab._cluster.warm.root)"
    ).strip()


def kernel_pid(client):
    return int(run_cell(client, "import os; print(os.getpid())"))


ENDS = {
    "kill -9": lambda manager, client: manager.signal_kernel(signal.SIGKILL),
    "terminate": lambda manager, client: manager.signal_kernel(signal.SIGTERM),
    "gentle shutdown": lambda manager, client: manager.shutdown_kernel(now=False),
    "restart": lambda manager, client: manager.restart_kernel(now=True),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("state", ["idle", "blocked"])
def test_nothing_is_left_when_the_kernel_ends(kernel, how, state):
    manager, client = kernel
    root = start_lab(client)
    if state == "blocked":  # rank 0 waits in a collective that nobody else joins
        run_cell(client, "%%px --ranks 0 --noblock\ndist.barrier()")
    below = descendants(kernel_pid(client))
    assert len(below) == 5  # warm process, controller, three ranks
    ENDS[how](manager, client)
    _, alive = psutil.wait_procs(below, timeout=5)
    assert alive == []
    assert not os.path.exists(root)


def test_a_child_that_the_kernel_forked_keeps_nothing_alive(kernel):
    _, client = kernel
    start_lab(client)
    below = descendants(kernel_pid(client))
    kernel_process = kernel_pid(client)
    code = (
        "pid = os.fork()\n"
        "if not pid:\n"
        "    os.setsid(); import time; time.sleep(30); os._exit(0)\n"
        "print(pid)"
    )
    pid = int(run_cell(client, code))
    try:
        os.kill(kernel_process, signal.SIGKILL)
        assert psutil.wait_procs(below, timeout=5)[1] == []
        assert psutil.pid_exists(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_nothing_listens_outside_loopback(lab4):
    lab4.run(lambda: __import__("torch").distributed.barrier())
    addresses = [
        connection.laddr.ip
        for process in [psutil.Process(), *descendants()]
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert addresses, "the store and gloo listen somewhere"
    assert set(addresses) <= {"127.0.0.1", "::1"}


def test_the_folder_is_private(lab4):
    root = lab4._cluster.warm.root
    assert root.stat().st_mode & 0o777 == 0o700


def test_a_killed_warm_process_takes_the_ranks_along_and_is_named(eventually):
    lab = labkit.start(2)
    try:
        below = descendants()
        lab._cluster.warm.process.kill()
        assert psutil.wait_procs(below, timeout=5)[1] == []
        eventually(lambda: [s.state.startswith("dead") for s in lab.status()] == [True, True], 3)
        with pytest.raises(labkit.RankDied, match="ranks 0–1 ended with signal 9"):
            lab.run(os.getpid)
        with pytest.raises(labkit.LabError, match=r"call labkit\.start\(\) again"):
            lab.restart()
    finally:
        lab.stop()
    with labkit.start(1) as fresh:
        assert len(fresh.run(os.getpid)) == 1


def test_a_plain_script_ends_clean():
    script = """
        import labkit, os, psutil, sys
        lab = labkit.start(2)
        print(*(p.pid for p in psutil.Process().children(recursive=True)))
        sys.exit(0)  # without lab.stop()
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert out.stderr == ""
    pids = [int(p) for p in out.stdout.split()]
    assert len(pids) == 4
    assert not any(map(psutil.pid_exists, pids))


def test_an_interrupt_returns_and_the_ranks_work_on(kernel):
    manager, client = kernel
    start_lab(client)
    timer = threading.Timer(1.0, manager.interrupt_kernel)
    timer.start()
    start = time.monotonic()
    reply = client.execute_interactive(
        "%%px\nimport time\ntime.sleep(30)", timeout=20, output_hook=lambda m: None
    )
    timer.join()
    assert reply["content"]["status"] == "error"
    assert time.monotonic() - start < 4
    assert run_cell(client, "print(lab.run(lambda: 1))") == "[1, 1, 1]\n"
