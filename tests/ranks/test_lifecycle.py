"""Labs end with their owner, however it ends, and listen nowhere but on loopback."""

import asyncio
import contextlib
import gc
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

import labkit
from labkit.tools import jupyterlab
from tests.conftest import descendants
from tests.support.alarm import alarm
from tests.support.cells import inside
from tests.support.events import HANG_SECONDS, LONG, busy_with, once, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cold")]


def run_cell(client, code, timeout=HANG_SECONDS):
    """Run a cell in a kernel; return what it printed. Fails on an error."""
    printed = []

    def on_output(message):
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=timeout, output_hook=on_output)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)


@pytest.fixture(autouse=True)
def _bound():
    """Fail a test that hangs, also where what hangs is the lab in this process."""
    with alarm(300):
        yield


@contextlib.contextmanager
def new_kernel():
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@pytest.fixture
def kernel():
    with new_kernel() as (manager, client):
        yield manager, client


@pytest.fixture
def place(tmp_path_factory, monkeypatch):
    """Give this test, and what it starts, a folder of its own for temporary files.

    Its name must be short: the sockets of a lab are in it.
    """
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@contextlib.contextmanager
def started(command, **options):
    """Start a program; at the end, end it and everything below that it left."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, **options)
    try:
        yield process
    finally:
        left = descendants(process.pid) if process.poll() is None else []
        process.kill()
        process.wait(HANG_SECONDS)
        for child in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def assert_gone(processes, seconds=HANG_SECONDS):
    """Wait until all of these have ended, by themselves: none of them would otherwise."""
    assert psutil.wait_procs(processes, timeout=seconds)[1] == []


def start_lab(client):
    """Start a lab in a kernel; return its private folder."""
    code = (
        "import labkit; from labkit.notebook.lab import session_of; lab = labkit.start(3); "
        "print(session_of(lab).cluster.launcher.warm.root)"
    )
    return run_cell(client, code).strip()


def kernel_pid(client):
    return int(run_cell(client, "import os; print(os.getpid())"))


ENDS = {
    "kill -9": lambda manager, client: manager.signal_kernel(signal.SIGKILL),
    "terminate": lambda manager, client: manager.signal_kernel(signal.SIGTERM),
    "gentle shutdown": lambda manager, client: manager.shutdown_kernel(now=False),
    "restart": lambda manager, client: manager.restart_kernel(now=True),
}


@pytest.mark.parametrize(
    ("state", "how"), [("idle", "gentle shutdown"), *(("blocked", how) for how in ENDS)]
)
def test_nothing_is_left_when_the_kernel_ends(kernel, how, state):
    manager, client = kernel
    root = start_lab(client)
    if state == "blocked":  # rank 0 waits in a collective that nobody else joins
        run_cell(client, "%%px --ranks 0 --noblock\ndist.barrier()")
    below = descendants(kernel_pid(client))
    assert len(below) == 6  # warm process, its guard of connections, controller, three ranks
    ENDS[how](manager, client)
    assert_gone(below)
    until(lambda: not os.path.exists(root))


def test_a_child_that_the_kernel_forked_keeps_nothing_alive(kernel):
    _, client = kernel
    start_lab(client)
    below = descendants(kernel_pid(client))
    kernel_process = kernel_pid(client)
    code = (
        "pid = os.fork()\n"
        "if not pid:\n"
        "    os.setsid(); import time; time.sleep(1000); os._exit(0)\n"
        "print(pid)"
    )
    pid = int(run_cell(client, code))
    try:
        os.kill(kernel_process, signal.SIGKILL)
        assert_gone(below)
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


def test_a_killed_warm_process_takes_the_ranks_along_and_is_named(eventually):
    lab = labkit.start(2)
    try:
        below = descendants()
        inside(lab).cluster.launcher.warm.process.kill()
        assert_gone(below)
        eventually(lambda: [s.state.startswith("dead") for s in lab.status()] == [True, True])
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
        timeout=HANG_SECONDS,
        check=True,
    )
    assert out.stderr == ""
    pids = [int(p) for p in out.stdout.split()]
    assert len(pids) == 5
    assert not any(map(psutil.pid_exists, pids))


def test_an_interrupt_returns_and_the_ranks_work_on(kernel, marks):
    manager, client = kernel
    start_lab(client)
    with once(lambda: marks.count() == 3, manager.interrupt_kernel):
        reply = client.execute_interactive(
            f"%%px\nimport time\n{marks.make()}\ntime.sleep({LONG})",
            timeout=HANG_SECONDS,
            output_hook=lambda m: None,
        )
    assert reply["content"]["status"] == "error"
    assert run_cell(client, "print(lab.run(lambda: 1))") == "[1, 1, 1]\n"


def test_a_kernel_that_was_killed_has_a_lab_again_after_its_restart(kernel, place):
    """JupyterLab restarts a dead kernel by itself; the learner runs the first cell again."""
    manager, client = kernel
    start_lab(client)
    run_cell(client, "%%px --ranks 0 --noblock\ndist.barrier()")
    below = descendants(kernel_pid(client))
    manager.signal_kernel(signal.SIGKILL)
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=HANG_SECONDS)
    root = start_lab(client)
    assert run_cell(client, "print(lab.run(lambda: 1))") == "[1, 1, 1]\n"
    assert_gone(below)
    assert [str(p) for p in place.glob("labkit-*")] == [root]
    run_cell(client, "lab.stop()")
    assert list(place.glob("labkit-*")) == []


def test_a_second_start_ends_a_lab_that_is_blocked(place):
    """Running the start cell again is what a learner does when a cell hangs."""
    first = labkit.start(2)
    below = descendants()
    waits = first.client[first.engine_ids[0]]
    reply = waits.execute("import torch.distributed as d; d.barrier()", block=False)
    until(lambda: busy_with({0: "waiting"})(first.status()))
    assert not reply.ready()
    with labkit.start(2) as second:
        assert_gone(below, 0)
        assert second.run(add_up) == [3.0, 3.0]
        with pytest.raises(labkit.LabError, match="This lab was stopped"):
            first.run(os.getpid)
    assert list(place.iterdir()) == []


def add_up(times=1):
    """Add up 1, 2, … across the ranks, some times over; return the last sum."""
    import torch
    import torch.distributed as dist

    for _ in range(times):
        x = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(x)
    return x.item()


def test_two_notebooks_have_a_lab_each_at_the_same_time(tmp_path):
    with new_kernel() as (_, one), new_kernel() as (_, other):
        both = ((one, 2), (other, 3))
        in_all(
            (client, f"import labkit; lab = labkit.start({size})", None) for client, size in both
        )
        cell = """
            import pathlib
            folder = pathlib.Path({folder!r})
            def work():
                import torch, torch.distributed as dist
                sums, left = set(), torch.tensor([300])
                while left.item():
                    x = torch.tensor([dist.get_rank() + {offset}.0])
                    dist.all_reduce(x)
                    sums.add(x.item())
                    (folder / "{offset}").touch()
                    if len(list(folder.iterdir())) == 2:  # the other one has begun
                        left -= 1
                    dist.broadcast(left, 0)
                return sums
            print(lab.run(work))
        """
        answers = in_all(
            (client, textwrap.dedent(cell.format(offset=10 * size, folder=str(tmp_path))), size)
            for client, size in both
        )
        # 20 + 21, and nothing else in between; each went on beside the other.
        assert answers == [f"{[{41.0}] * 2}\n", f"{[{93.0}] * 3}\n"]


def in_all(cells):
    """Run a cell in several kernels at the same time; return what each printed."""
    cells = list(cells)
    answers = [None] * len(cells)

    def run(index):
        answers[index] = run_cell(*cells[index][:2])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(cells))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * HANG_SECONDS)
    assert None not in answers
    return answers


def test_labs_in_a_row_leave_nothing_behind(place):
    """In a running event loop, as a notebook starts them."""
    used = []

    async def start_and_stop():
        for _ in range(6):
            with labkit.start(2) as lab:
                below = descendants()
                assert lab.run(add_up) == [3.0, 3.0]
            assert_gone(below)
            assert list(place.iterdir()) == []
            del lab
            gc.collect()
            used.append((threading.active_count(), psutil.Process().num_fds()))

    asyncio.run(start_and_stop())
    threads, descriptors = zip(*used, strict=True)
    # The first one may load what stays; nothing may add up.
    assert threads[-1] <= threads[1], used
    assert descriptors[-1] <= descriptors[1] + 2, used


def half_blocked(folder):
    """Wait on rank 0 for the others, which sleep; leave a mark before that."""
    import pathlib
    import time

    import torch.distributed as dist

    pathlib.Path(folder, f"{dist.get_rank()}.mark").touch()
    if dist.get_rank():
        time.sleep(1000)
    dist.barrier()


def test_a_warm_process_killed_under_a_blocked_cell_ends_it(place, tmp_path, marks):
    lab = labkit.start(4)
    try:
        below = descendants()
        kill = inside(lab).cluster.launcher.warm.process.kill
        with (
            once(lambda: marks.count() == 4, kill),
            pytest.raises(labkit.RankDied, match=r"^ranks 0–3 ended with signal 9") as caught,
        ):
            lab.run(half_blocked, str(tmp_path))
        assert "freed" not in str(caught.value)  # there was nobody left to be freed
        assert_gone(below)
    finally:
        lab.stop()
    assert list(place.iterdir()) == []
    with labkit.start(2) as fresh:
        assert fresh.run(add_up) == [3.0, 3.0]


CONTROLLER_GONE = (
    r"^The controller, which carries messages to the ranks, has ended with signal 9 \(SIGKILL\); "
    r"call labkit\.start\(\) again\.$"
)


def test_a_killed_controller_is_said_at_the_next_call(place, eventually):
    lab = labkit.start(2)
    try:
        below = descendants()
        controller = inside(lab).cluster.launcher.warm.children["controller"]
        os.kill(controller.pid, signal.SIGKILL)
        calls = (
            lambda: lab.run(os.getpid),
            lambda: lab["x"],
            lambda: lab.__setitem__("x", 1),
            lab.status,
            lab.reset,
            lab.restart,
            lambda: lab.restart(ranks=[0]),
        )
        for call in calls:
            with pytest.raises(labkit.LabError, match=CONTROLLER_GONE):
                call()
    finally:
        lab.stop()
    assert_gone(below)
    assert list(place.iterdir()) == []
    with labkit.start(2) as fresh:
        assert fresh.run(add_up) == [3.0, 3.0]


def test_a_controller_killed_under_a_blocked_cell_ends_it(place, tmp_path, marks):
    lab = labkit.start(2)
    try:
        below = descendants()
        pid = inside(lab).cluster.launcher.warm.children["controller"].pid
        with (
            once(lambda: marks.count() == 2, lambda: os.kill(pid, signal.SIGKILL)),
            pytest.raises(labkit.LabError, match=CONTROLLER_GONE),
        ):
            lab.run(half_blocked, str(tmp_path))
    finally:
        lab.stop()
    assert_gone(below)
    assert list(place.iterdir()) == []


# -- the programs around it ---------------------------------------------------------------------

PYTEST_FILE = """
    import pathlib, labkit

    def half_blocked(ready):
        import pathlib, time
        import torch.distributed as dist
        if dist.get_rank():
            time.sleep(1000)
        pathlib.Path(ready).touch()
        dist.barrier()

    def test_it():
        with labkit.start(3) as lab:
            lab.run(half_blocked, str(pathlib.Path(__file__).with_name("ready")))
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, pytest.ExitCode.INTERRUPTED)],
    ids=["sigterm", "ctrl-c"],
)
def test_nothing_is_left_when_pytest_ends(how, code, place, tmp_path, eventually):
    (tmp_path / "test_lab.py").write_text(textwrap.dedent(PYTEST_FILE))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_lab.py"]
    with (
        open(tmp_path / "log", "w") as log,
        started(command, cwd=tmp_path, stdout=log, stderr=log) as process,
    ):
        eventually(lambda: (tmp_path / "ready").exists())
        time.sleep(0.3)  # now rank 0 is in its barrier, as a rule
        below = descendants(process.pid)
        assert len(below) == 6  # warm process, its guard of connections, controller, three ranks
        assert [path.name[:7] for path in place.iterdir()] == ["labkit-"]
        process.send_signal(how)
        assert process.wait(HANG_SECONDS) == code, (tmp_path / "log").read_text()
        assert_gone(below)
        eventually(lambda: list(place.iterdir()) == [])


def ask(port, path, body=None):
    """Ask a Jupyter server; return its JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    with contextlib.closing(connection):
        text = None if body is None else json.dumps(body)
        headers = {"Authorization": "token lifecycle"}
        connection.request("GET" if body is None else "POST", path, text, headers)
        answer = connection.getresponse()
        assert answer.status < 300, answer.read()
        return json.loads(answer.read())


def is_listening(port):
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


SERVER_ENDS = {"ctrl-c twice": [signal.SIGINT, signal.SIGINT], "sigkill": [signal.SIGKILL]}


@pytest.mark.parametrize("how", SERVER_ENDS)
def test_nothing_is_left_when_jupyterlab_ends(how, place, tmp_path, monkeypatch, eventually, marks):
    """A cell is blocked in a collective while the server stops or is killed."""
    runtime = tmp_path / "runtime"
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(runtime))
    token = ["--IdentityProvider.token=lifecycle"]
    command = jupyterlab.command(tmp_path, port=0, browser=False, extra=token)
    with (
        open(tmp_path / "log", "w") as log,
        started(command, cwd=tmp_path, stdout=log, stderr=log) as server,
    ):
        eventually(lambda: list(runtime.glob("jpserver-*.json")))
        (info,) = runtime.glob("jpserver-*.json")
        eventually(lambda: info.read_text().endswith("}"))
        port = json.loads(info.read_text())["port"]
        eventually(lambda: is_listening(port))  # it writes the file before it listens
        kernel = ask(port, "/api/kernels", {"name": "python3"})["id"]
        client = BlockingKernelClient(connection_file=str(runtime / f"kernel-{kernel}.json"))
        client.load_connection_file()
        # Else it takes a kernel for dead that imports for longer than a second.
        client.hb_channel.time_to_dead = HANG_SECONDS
        client.start_channels()
        try:
            client.wait_for_ready(timeout=HANG_SECONDS)
            root = Path(start_lab(client))
            cell = f"{marks.make()}\nif rank:\n    import time; time.sleep({LONG})\ndist.barrier()"
            client.execute("%%px\n" + cell)
            eventually(lambda: marks.count() == 3)
            path = f"/api/kernels/{kernel}"
            eventually(lambda: ask(port, path)["execution_state"] == "busy")
        finally:
            client.stop_channels()
        below = descendants(server.pid)
        assert len(below) == 7  # kernel, warm process, its guard, controller, three ranks
        assert root.parent == place
        for signum in SERVER_ENDS[how]:
            said = (tmp_path / "log").stat().st_size
            server.send_signal(signum)
            # A second signal that comes before the first was seen would be the same one.
            eventually(
                lambda said=said: (
                    server.poll() is not None or (tmp_path / "log").stat().st_size > said
                )
            )
        server.wait(HANG_SECONDS)
        assert_gone(below)
        eventually(lambda: list(place.glob("labkit-*")) == [])
    with labkit.start(2) as fresh:
        assert fresh.run(add_up) == [3.0, 3.0]
