"""The zygote: labs start from what one process has imported, and differ in nothing else."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import labkit
from labkit.base import times
from labkit.launch import zygote_client
from labkit.launch.warm_process import WarmProcess
from labkit.wire import processes
from labkit.wire.processes import ForkedProcess
from labkit.wire.state import describe_exit
from tests.conftest import freeze
from tests.support.cells import inside, run_cell
from tests.support.events import HANG_SECONDS
from tests.support.warm_start import READY_SECONDS
from tests.support.zygotes import started


@pytest.fixture(scope="module")
def zygote():
    with pytest.MonkeyPatch.context() as patch, started(patch) as one:
        yield one


@contextmanager
def warm():
    """A warm process, ready, as ``labkit.start`` starts it."""
    process = WarmProcess.start()
    try:
        assert process.ready.wait(READY_SECONDS)
        yield process
    finally:
        process.close()


def is_from(zygote, process):
    return isinstance(process.process, ForkedProcess) and (
        psutil.Process(process.process.pid).ppid() == zygote.process.pid
    )


def test_a_lab_starts_from_it_and_trains(zygote):
    with labkit.start(2) as lab:
        assert is_from(zygote, inside(lab).cluster.launcher.warm)
        run_cell(lab, "t = torch.ones(3) * rank\ndist.all_reduce(t)")
        assert [t.tolist() for t in lab["t"]] == [[1.0] * 3] * 2


def test_labs_of_two_processes_are_two(zygote):
    code = "import labkit; lab = labkit.start(2); print(sorted(lab['rank']))"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert other.stdout == "[0, 1]\n", other.stderr


def test_a_rank_has_the_fingerprint_of_its_notebook(zygote, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_TRIED", "here")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    cores = os.sched_getaffinity(0)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    umask = os.umask(0o027)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0] - 1, limits[1]))
        os.sched_setaffinity(0, {min(cores)})
        with labkit.start(1) as lab:
            assert is_from(zygote, inside(lab).cluster.launcher.warm)
            run_cell(
                lab,
                "import os, resource\n"
                "umask = os.umask(0); os.umask(umask)\n"
                "has = [os.getcwd(), os.environ['LABKIT_TRIED'], torch.get_num_threads(), umask,\n"
                "       os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]",
            )
            assert lab["has"] == [[str(tmp_path), "here", 3, 0o027, {min(cores)}, limits[0] - 1]]
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.sched_setaffinity(0, cores)


def test_a_rank_has_the_recorder_of_its_notebook(zygote, monkeypatch):
    """Torch reads its size when the rank makes its first group, not when the zygote imports it."""
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "5")
    with labkit.start(1) as lab:
        assert is_from(zygote, inside(lab).cluster.launcher.warm)
        run_cell(
            lab,
            "import pickle\n"
            "from torch._C._distributed_c10d import _dump_fr_trace\n"
            "for _ in range(9): dist.all_reduce(torch.ones(1))\n"
            "kept = len(pickle.loads(_dump_fr_trace())['entries'])",
        )
        assert lab["kept"] == [5]


def test_a_warm_process_keeps_nothing_of_it_open(zygote):
    with warm() as first, warm() as second:
        assert is_from(zygote, second)
        own = [os.readlink(path) for path in Path(f"/proc/{second.process.pid}/fd").iterdir()]
        assert not [name for name in own if "zygote" in name or str(zygote.folder.path) in name]
        assert not [name for name in own if str(first.root) in name]
        # Its line to us, the pair that wakes it, the guard's: nothing else is a socket.
        assert sum(name.startswith("socket:") for name in own) <= 5


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "TORCH_LOGS", "MKL_NUM_THREADS", "SOME_NAME"])
def test_another_variable_asks_for_another_process(zygote, monkeypatch, name):
    """Anything could be read while torch is being imported."""
    monkeypatch.setenv(name, "1")
    with warm() as process:
        assert isinstance(process.process, subprocess.Popen)


def test_what_torch_itself_sets_when_it_compiles_changes_nothing(zygote, monkeypatch):
    """A kernel that has compiled something would start all later labs anew."""
    from torch._inductor.runtime import cache_dir_utils  # takes seconds

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    cache_dir_utils.cache_dir()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"]
    with warm() as process:
        assert isinstance(process.process, ForkedProcess)


def test_other_code_asks_for_another_process(zygote, monkeypatch):
    monkeypatch.setattr(zygote_client.fingerprint, "_code", lambda: ["changed since"])
    with warm() as process:
        assert isinstance(process.process, subprocess.Popen)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("command", [["unshare", "--net"], ["setpriv", "--bounding-set=-sys_time"]])
def test_other_rights_ask_for_another_process(zygote, command):
    code = (
        "from labkit.launch.warm_process import WarmProcess\n"
        "w = WarmProcess.start(()); w.ready.wait(120); print(type(w.process).__name__); w.close()"
    )
    done = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "Popen\n", done.stderr


def test_it_imports_nothing_again(zygote):
    """Counted in CPU seconds, which a busy machine leaves as they are."""

    def cost():
        with warm() as process:
            times = psutil.Process(process.process.pid).cpu_times()
            return times.user + times.system

    from_it = min(cost() for _ in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(zygote_client.VARIABLE)
        alone = cost()
    assert from_it < alone / 5


def test_many_labs_leave_nothing_in_it(zygote, eventually):
    def held():
        process = psutil.Process(zygote.process.pid)
        return process.memory_info().rss, process.num_fds(), len(process.children())

    idle = held()[1:]  # files, and children
    with warm():
        pass
    eventually(lambda: held()[1:] == idle)
    before = held()[0]
    for _ in range(20):
        with warm():
            pass
    eventually(lambda: held()[1:] == idle)
    assert held()[0] < before + (4 << 20)
    assert psutil.Process(zygote.process.pid).num_threads() == 1


def test_how_a_warm_process_ends_is_known(zygote, eventually):
    with warm() as process:
        os.kill(process.process.pid, signal.SIGSEGV)
        assert process.closed.wait(HANG_SECONDS)
        assert describe_exit(process.process.poll()) == "signal 11 (SIGSEGV)"
        assert "SIGSEGV" in process.how_ended()
    with warm() as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.process.wait(0.05)
        process.process.kill()
        assert process.process.wait(HANG_SECONDS) == -signal.SIGKILL
        process.process.kill()  # says nothing


def test_a_lab_outlives_it(monkeypatch):
    with started(monkeypatch) as one, labkit.start(2) as lab:
        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait()
        run_cell(lab, "t = torch.ones(1)\ndist.all_reduce(t)")
        assert [t.item() for t in lab["t"]] == [2, 2]
        lab.stop()
        with warm() as process:  # nobody is there any more
            assert isinstance(process.process, subprocess.Popen)


def test_one_that_is_stopped_is_not_waited_for(monkeypatch, eventually):
    monkeypatch.setattr(times, "ZYGOTE_ANSWER", times.Bound(0.2))
    with started(monkeypatch) as one:
        freeze(one.process.pid)
        try:
            with warm() as process:
                assert isinstance(process.process, subprocess.Popen)
                os.kill(one.process.pid, signal.SIGCONT)
                # What it forks late finds that nobody wants it, and touches nothing of ours.
                eventually(lambda: not psutil.Process(one.process.pid).children())
                assert process.root.exists()
                call = process.fork("still", "call", ["os:getpid"])
                assert call.exited.wait(HANG_SECONDS)
                assert call.code == 0
        finally:
            os.kill(one.process.pid, signal.SIGCONT)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_owner_and_labs_with_theirs(tmp_path, monkeypatch, eventually, how):
    monkeypatch.delenv(zygote_client.VARIABLE, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    owner = (
        "import os, subprocess, sys, time\n"
        "from labkit.launch.zygote_client import Zygote\n"
        "zygote = Zygote.start()\n"
        "lab = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
        "print(zygote.process.pid, lab.pid, lab.stdout.readline().decode(), flush=True)\n"
        "time.sleep(600)"
    )
    kernel = (
        "import os, time, psutil, labkit\n"
        "lab = labkit.start(2)\n"
        "pids = lab.client[:].apply_sync(os.getpid)\n"
        "print(*pids, psutil.Process(pids[0]).ppid(), flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", owner, kernel], stdout=subprocess.PIPE) as process:
        zygote, lab, *ranks = map(int, process.stdout.readline().split())
        assert psutil.Process(ranks[-1]).ppid() == zygote
        process.send_signal(how)
        process.wait()
        eventually(lambda: not psutil.pid_exists(zygote))
        assert all(map(psutil.pid_exists, [lab, *ranks]))  # they are somebody else's
        os.kill(lab, signal.SIGKILL)
        eventually(lambda: not any(map(psutil.pid_exists, ranks)))
    eventually(lambda: not list(tmp_path.glob("labkit-*")))


def test_a_folder_of_somebody_else_is_not_entered(zygote, tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    monkeypatch.setenv(zygote_client.VARIABLE, str(tmp_path))
    with warm() as process:
        assert isinstance(process.process, subprocess.Popen)


def test_what_is_no_request_costs_it_nothing(zygote):
    where = str(zygote.folder.path / zygote_client.SOCKET)
    for data in (
        b"",
        b"\x00",
        processes.LENGTH.pack(3) + b"[1]",
        processes.LENGTH.pack(2) + b"{}",
    ):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(where)
            line.sendall(data)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(where)
        message = json.dumps({"argv": [], "environment": {}, "fingerprint": {}, "settings": {}})
        line.sendall(processes.LENGTH.pack(len(message)) + message.encode())
        assert "refused" in processes.receive_message(line, [])
    with warm() as process:
        assert is_from(zygote, process)
