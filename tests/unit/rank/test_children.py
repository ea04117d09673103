"""What an interrupted cell has started ends; what was there before, or is a variable's, stays."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from labkit.rank import children

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def start() -> Iterator[Callable[..., multiprocessing.process.BaseProcess]]:
    with ExitStack() as undo:

        def start(**named: object) -> multiprocessing.process.BaseProcess:
            process = SPAWN.Process(target=time.sleep, args=(60,), **named)  # type: ignore[arg-type]
            process.start()
            undo.callback(process.join)
            undo.callback(process.kill)
            return process

        yield start


def test_what_was_started_since_gets_one_signal_after_the_other(
    start: Callable[..., multiprocessing.process.BaseProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = []
    before = start()
    children.note()
    own = start()
    due: list[Callable[[], None]] = []
    with monkeypatch.context() as patch:  # the fixture kills its processes by the same function
        patch.setattr(children.os, "kill", lambda pid, signum: sent.append((pid, signum)))
        children.end(lambda seconds, function: due.append(function))
        assert sent == [(own.pid, signal.SIGINT)]
        due.pop()()
        due.pop()()
        assert sent[1:] == [(own.pid, signal.SIGTERM), (own.pid, signal.SIGKILL)]
        due.pop()()
        assert (len(sent), due) == (3, [])
    assert before.is_alive()


def test_one_that_has_ended_gets_no_more(
    start: Callable[..., multiprocessing.process.BaseProcess],
) -> None:
    children.note()
    own = start()
    due: list[Callable[[], None]] = []
    children.end(lambda seconds, function: due.append(function))
    own.kill()
    own.join()
    due.pop()()
    assert due == []


def test_a_daemon_is_not_killed(
    start: Callable[..., multiprocessing.process.BaseProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGTERM at the latest: torch raises an error in the rank for a worker that is killed."""
    children.note()
    worker = start(daemon=True)
    sent: list[tuple[int | None, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(children.os, "kill", lambda pid, signum: sent.append((pid, signum)))
        due: list[Callable[[], None]] = []
        children.end(lambda seconds, function: due.append(function))
        while due:
            due.pop()()
    assert sent == [(worker.pid, signal.SIGINT), (worker.pid, signal.SIGTERM)]
