"""Fixtures that several test files share."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit.launch import zygote_client
from labkit.wire import python_threads
from tests.support.alarm import alarm
from tests.support.events import HANG_SECONDS, Gate, Marks, until
from tests.support.warm_start import zygotes


def pytest_configure() -> None:
    """Let an interrupt arrive: a shell that runs pytest in the background has it ignored, and
    tests that press the stop button would wait forever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the corpus of answers ran (``test_answers``), how many wrong ones were told
    their own cause, and how many mutants of the solutions were refused (``test_mutants``)."""
    told: list[str] = []
    refused = tried = 0
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            said = dict(report.user_properties)
            told += [said["answer"]] if "answer" in said else []
            refused, tried = (
                a + b for a, b in zip((refused, tried), said.get("mutants", (0, 0)), strict=True)
            )
    if told:
        wrong = len(told) - told.count("right")
        line = f"answers: {told.count('right')} right ones passed, {wrong} wrong ones refused"
        if wrong:
            line += f", {told.count('named') / wrong:.0%} of them with a cause of their own"
        terminalreporter.write_line(line)
    if tried:
        terminalreporter.write_line(f"mutants: {refused} of {tried} refused, {refused / tried:.1%}")


@pytest.fixture(scope="module")
def lab4() -> Iterator[labkit.Lab]:
    """Four ranks in a process group, shared by the tests of one file."""
    with labkit.start(4) as lab:
        yield lab


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    """IPython's shell, as a terminal has it: it runs cells of the notebook's side."""
    instance = InteractiveShell.instance()
    instance.history_manager.enabled = False
    yield instance
    InteractiveShell.clear_instance()


@pytest.fixture(scope="module")
def cold() -> Iterator[None]:
    """Let labs of a file start without the session's zygote: below their notebook's process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(zygote_client.VARIABLE, raising=False)
        yield


@pytest.fixture
def alarmed() -> Iterator[None]:
    """Fail a test that hangs, instead of the whole run."""
    with alarm(int(HANG_SECONDS)):
        yield


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait until something is true; fail where it never is, with what is the case instead."""
    return until


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Where cells of a test wait until it opens; open at its end."""
    made = Gate(tmp_path / "gate")
    yield made
    made.open()


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    """What cells of a test say that they have reached."""
    return Marks(tmp_path)


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    """Fail a test after which a warm process is still there whose owner has gone."""
    yield

    def left() -> set[int]:
        return set(_find_orphans()) - _told

    try:
        until(lambda: not left(), instead=lambda: f"orphaned warm processes: {left()}")
    finally:
        _told.update(left())


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """Fail a test that leaves a thread here which may do anything: every later deadlock that a lab
    of this process proves would only be suspected."""
    before = set(threading.enumerate())
    yield

    def left() -> list[str]:
        # Shells of some IPython from 9.1 on keep it; a kernel has it from its start on.
        stays = "IPythonHistorySavingThread"
        return [t.name for t in _at_large() if t not in before and t.name != stays]

    until(lambda: not left(), instead=lambda: f"threads are left: {left()}")


def _at_large() -> list[threading.Thread]:
    """List the threads of this process that a proof could not leave out."""
    idents = {t.ident: t for t in threading.enumerate()}
    found = python_threads.look({threading.get_ident()})
    return [idents[t.ident] for t in found if t.ident in idents]


#: Orphans that a test has failed for: it is no other test's fault.
_told: set[int] = set()
#: What the processes run from which ranks are forked.
_STARTERS = {"labkit.launch.fork_server", "labkit.launch.zygote"}


def _find_orphans() -> list[int]:
    """List the warm processes that nobody owns: only children of the first process, since a look
    at every process takes three times as long, thousands of times."""
    try:
        return [p.pid for p in psutil.Process(1).children() if _is_orphan(p)]
    except psutil.Error:  # a system that hides it
        return [p.pid for p in psutil.process_iter() if _is_orphan(p)]


def _is_orphan(process: psutil.Process) -> bool:
    try:
        return process.ppid() == 1 and not _STARTERS.isdisjoint(process.cmdline())
    except psutil.Error:
        return False


def descendants(pid: int | None = None) -> list[psutil.Process]:
    """List the processes below one (default: this one), but for the session's zygote."""
    below = psutil.Process(pid or os.getpid()).children(recursive=True)
    return [process for process in below if process.pid not in zygotes]


def warm_processes() -> list[psutil.Process]:
    """List the warm processes of this one's labs: its own children, or its zygote's."""
    owners = {os.getpid(), *zygotes}
    starters = [p for p in descendants() if not _STARTERS.isdisjoint(p.cmdline())]
    return [process for process in starters if process.ppid() in owners]


def freeze(pid: int) -> None:
    """Stop a process, and return when each of its threads stands still: the signal itself is only
    sent, and a thread that runs may answer one more question."""
    os.kill(pid, signal.SIGSTOP)
    process = psutil.Process(pid)

    def stands() -> bool:
        return {psutil.Process(thread.id).status() for thread in process.threads()} == {
            psutil.STATUS_STOPPED
        }

    until(stands, instead=lambda: f"{pid} does not stop")


def fill_disk(folder: Path) -> Path:
    """Write into ``folder`` until its file system is full; return the file that fills it."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler
