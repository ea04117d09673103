"""The warm process: forks, reports exits, and never outlives its owner."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from labkit.base.errors import LabError
from labkit.launch import private_folder
from labkit.launch.warm_process import WarmProcess
from labkit.wire.state import describe_exit
from tests.support.events import HANG_SECONDS


@pytest.fixture(scope="module")
def warm():
    process = WarmProcess.start(preload=())
    yield process
    process.close()


def call(warm, name, target, *args, **kwargs):
    return warm.fork(name, "call", [target, *args], **kwargs)


def test_reports_an_exit_at_once(warm):
    seen = []
    child = call(warm, "sleeper", "time:sleep", on_exit=lambda *e: seen.append(e))
    child = warm.children["sleeper"]
    assert child.exited.wait(HANG_SECONDS)  # time.sleep() without an argument: TypeError
    assert child.code == 1
    assert "TypeError" in warm.output("sleeper")
    assert seen == [(child.pid, 1)]


def test_a_child_that_was_forked_ahead_is_taken_once(warm, eventually):
    for name, target, code in (
        ("early", "signal:pause", -signal.SIGKILL),
        ("over", "os:abort", -6),
    ):
        seen = []
        warm.fork_ahead(name, "call", [target], {})
        child = warm.children[name]
        if name == "over":  # before anybody takes it
            assert child.exited.wait(HANG_SECONDS)
        assert warm.adopt(name, lambda *e, seen=seen: seen.append(e))
        assert not warm.adopt(name, print)
        if name == "early":
            assert child.started.wait(HANG_SECONDS)
            assert seen == []
            warm.signal(name, signal.SIGKILL)
            assert child.exited.wait(HANG_SECONDS)
        eventually(lambda seen=seen: seen)
        assert seen == [(child.pid, code)]


def test_names_the_signal_that_ended_a_child(warm):
    child = call(warm, "stuck", "signal:pause")
    assert child.started.wait(HANG_SECONDS)
    warm.signal("stuck", signal.SIGSEGV)
    assert child.exited.wait(HANG_SECONDS)
    assert describe_exit(child.code) == "signal 11 (SIGSEGV)"


def test_a_stopped_child_can_still_be_killed(warm):
    child = call(warm, "stopped", "signal:pause")
    assert child.started.wait(HANG_SECONDS)
    warm.signal("stopped", signal.SIGSTOP)
    warm.signal("stopped", signal.SIGKILL)
    assert child.exited.wait(HANG_SECONDS)


def test_what_a_child_leaves_behind_ends_with_it(warm, tmp_path, eventually):
    child = call(
        warm, "parent", "tests.ranks.test_warm_process:start_grandchild", str(tmp_path / "pid")
    )
    assert child.exited.wait(HANG_SECONDS)
    assert child.code == 0
    grandchild = int((tmp_path / "pid").read_text())
    eventually(lambda: not psutil.pid_exists(grandchild))


def start_grandchild(path):
    """Start a process that nobody will wait for (runs in a child of the warm process)."""
    process = subprocess.Popen(["sleep", "1000"])
    process.returncode = 0  # keeps Popen from warning that it is still alive
    Path(path).write_text(str(process.pid))


def test_two_children_of_one_name_are_refused(warm):
    child = call(warm, "twice", "signal:pause")
    with pytest.raises(LabError, match="'twice' is already running"):
        call(warm, "twice", "signal:pause")
    warm.signal("twice", signal.SIGKILL)
    assert child.exited.wait(HANG_SECONDS)
    again = call(warm, "twice", "signal:pause")  # the name is free again
    warm.signal("twice", signal.SIGKILL)
    assert again.exited.wait(HANG_SECONDS)


def test_a_log_on_a_full_disk_costs_the_log_only(warm, monkeypatch):
    monkeypatch.setattr(warm, "log_file", lambda name: Path("/proc/nowhere/log"))
    child = call(warm, "quiet", "os:getpid")
    assert child.exited.wait(HANG_SECONDS)
    assert child.code == 0


@pytest.mark.slow
def test_single_threaded_after_importing_torch():
    """Forking a process with threads would copy locks that nobody can ever release."""
    process = WarmProcess.start()
    try:
        assert process.ready.wait(HANG_SECONDS)
        assert process.problems == {}
        assert len(os.listdir(f"/proc/{process.process.pid}/task")) == 1
    finally:
        process.close()


def owner_script(folder: Path) -> list[str]:
    code = (
        "import time; from labkit.launch.warm_process import WarmProcess\n"
        "w = WarmProcess.start(preload=())\n"
        "c = w.fork('child', 'call', ['signal:pause']); c.started.wait(60)\n"
        "print(w.process.pid, c.pid, w.root, flush=True); time.sleep(1000)"
    )
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("how", ["owner killed", "warm process killed", "both killed"])
def test_nothing_is_left_after_a_kill(how, tmp_path, eventually, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    owner = subprocess.Popen(owner_script(tmp_path), stdout=subprocess.PIPE, text=True)
    with owner:
        warm_pid, child_pid, root = owner.stdout.readline().split()
        assert Path(root).is_dir()
        assert Path(root).stat().st_mode & 0o777 == 0o700
        if how != "warm process killed":
            owner.kill()
        if how != "owner killed":
            os.kill(int(warm_pid), signal.SIGKILL)
        eventually(lambda: not any(map(alive, (int(warm_pid), int(child_pid)))))
        if how == "both killed":
            age(Path(root))
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
            owner.wait(HANG_SECONDS)
            private_folder.sweep()  # as the next start does
        eventually(lambda: not Path(root).exists())
        owner.kill()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def age(root: Path) -> None:
    """Make a private folder look old enough to be swept."""
    os.utime(root / "owner", (1, 1))


def test_sweeping_leaves_a_living_owners_folder(warm):
    age(warm.root)
    private_folder.sweep()
    assert warm.root.is_dir()


def test_no_room_for_the_private_folder(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(blocked))
    with pytest.raises(LabError, match="Cannot start the ranks: no private folder in"):
        WarmProcess.start(preload=())


def test_a_request_after_the_end_is_one_clear_sentence():
    process = WarmProcess.start(preload=())
    process.process.kill()
    assert process.closed.wait(HANG_SECONDS)
    with pytest.raises(LabError, match=r"ended with signal 9 \(SIGKILL\); call labkit.start"):
        process.fork("late", "call", ["os:getpid"])
    process.close()
    assert not process.root.exists()
