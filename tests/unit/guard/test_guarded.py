"""Threads whose connections the guard accepts; each test in a process, which forks the guard."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")

BEGIN = """
import os, signal, socket, threading
from labkit.guard import server as connection_guard
pid = connection_guard.start()
from labkit.guard import guarded
guarded.install()
assert guarded.ENV not in os.environ
if guarded.open_reason():
    print("open:", guarded.open_reason())
    os._exit(0)

def serve(blocking):
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(blocking)
    def accept():
        try:
            got.append(server.accept())
        except OSError as error:
            got.append(type(error).__name__)
    thread = threading.Thread(target=accept)
    thread.start()
    return server, thread

got = []
"""


def run(code: str, first: str = "") -> list[str]:
    """Run code behind ``first`` and ``BEGIN``; return the lines it prints."""
    command = [sys.executable, "-c", first + BEGIN + textwrap.dedent(code)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    if lines and lines[0].startswith("open:"):
        pytest.skip(lines[0])
    return lines


def test_an_own_connection_is_accepted_with_its_address():
    assert run("""
        server, thread = guarded.call(lambda: serve(True))
        line = socket.create_connection(server.getsockname())
        thread.join(20)
        connection, address = got[0]
        line.sendall(b"hello")
        print(connection.recv(5), address == line.getsockname())
    """) == ["b'hello' True"]


def test_where_nobody_is_it_says_so():
    assert run("""
        server, thread = guarded.call(lambda: serve(False))
        thread.join(20)
        print(got)
    """) == ["['BlockingIOError']"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can be any user")
def test_a_stranger_is_not_accepted():
    assert run("""
        server, thread = guarded.call(lambda: serve(True))
        stranger = os.fork()
        if stranger == 0:
            os.setresuid(65534, 65534, 65534)
            line = socket.socket()
            line.settimeout(20)
            line.connect(server.getsockname())
            os._exit(0 if line.recv(1) == b"" else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(stranger, 0)[1]), got)
        own = socket.create_connection(server.getsockname())
        thread.join(20)
        print(got[0][1] == own.getsockname())
    """) == ["0 []", "True"]


def test_values_errors_and_interrupts_come_back():
    assert run("""
        print(guarded.call(lambda: 3))
        try:
            guarded.call(lambda: 1 / 0)
        except ZeroDivisionError as error:
            print(error)
        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            done.append(True)
        done = []
        try:
            guarded.call(interrupt)
        except KeyboardInterrupt:
            print(done)
    """) == ["3", "division by zero", "[True]"]


def test_only_such_threads_have_the_filter():
    assert run("""
        def filters():
            with open(f"/proc/self/task/{threading.get_native_id()}/status") as lines:
                return next(line.split()[1] for line in lines if line.startswith("Seccomp:"))
        own = filters()
        print(guarded.call(filters) == "2", filters() == own)
    """) == ["True True"]


def test_a_process_forked_by_a_cell_has_no_guard():
    assert run("""
        if os.fork() == 0:
            print(guarded.is_there(), guarded.call(lambda: 5), flush=True)
            os._exit(0)
        os.wait()
    """) == ["False 5"]


def test_without_its_process_nothing_listens():
    assert run("""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        try:
            guarded.call(lambda: 1)
        except guarded.GuardEnded as error:
            print(str(error).partition(",")[0])
    """) == ["The process that accepts connections for the ranks has ended"]


def test_the_guard_may_open_as_many_files_as_the_system_allows():
    """A group of a rank costs it two; a lab in which many are made had none after an hour."""
    first = "import resource; most = resource.getrlimit(7)[1]; resource.setrlimit(7, (99, most))"
    code = "print(resource.prlimit(pid, resource.RLIMIT_NOFILE) == (most, most))"
    assert run(code, first) == ["True"]


def test_who_finds_no_room_is_told_and_those_who_are_there_go_on():
    """Whether the call of accept that waits came before the limit or after it."""
    assert run("""
        import resource
        def may_open(files):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, most))
        most = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        server, thread = guarded.call(lambda: serve(True))
        may_open(len(os.listdir(f"/proc/{pid}/fd")))
        try:
            guarded.call(lambda: serve(True))
        except guarded.GuardEnded as error:
            print(error.args[0][:65])
        may_open(most)
        line = socket.create_connection(server.getsockname())
        thread.join(20)
        print(type(got[0]).__name__)
    """) == ["The process that accepts connections for the ranks has ended, or ", "tuple"]


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "not blocking"])
def test_a_call_for_which_there_is_no_room_is_answered_when_there_is_some(blocking):
    assert run(f"""
        import resource, select
        most = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        called = threading.Event()
        def listen():
            server = socket.create_server(("127.0.0.1", 0))
            server.setblocking({blocking})
            def accept():
                called.wait(20)
                select.select([server], [], [], 20)
                got.append(server.accept())
            thread = threading.Thread(target=accept)
            thread.start()
            return server, thread
        server, thread = guarded.call(listen)
        line = socket.create_connection(server.getsockname())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, most))
        called.set()
        thread.join(0.3)
        print(thread.is_alive())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        thread.join(20)
        print(got[0][1] == line.getsockname())
    """) == ["True", "True"]
