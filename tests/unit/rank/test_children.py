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
    daemon, own = start(daemon=True), start()  # a variable leads to the one
    due: list[Callable[[], None]] = []
    with monkeypatch.context() as patch:  # the fixture kills its processes by the same function
        patch.setattr(children.os, "kill", lambda pid, signum: sent.append((pid, signum)))
        children.end(lambda seconds, function: due.append(function), [[daemon]])
        assert sent == [(own.pid, signal.SIGINT)]
        due.pop()()
        due.pop()()
        assert sent[1:] == [(own.pid, signal.SIGTERM), (own.pid, signal.SIGKILL)]
        due.pop()()
        assert (len(sent), due) == (3, [])
    assert daemon.is_alive()
    assert before.is_alive()


def test_one_that_has_ended_gets_no_more(
    start: Callable[..., multiprocessing.process.BaseProcess],
) -> None:
    children.note()
    own = start()
    due: list[Callable[[], None]] = []
    children.end(lambda seconds, function: due.append(function), [])
    own.kill()
    own.join()
    due.pop()()
    assert due == []


class Loader:
    """Holds processes as an iterator of a DataLoader does, in a cycle."""

    def __init__(self, workers: list[multiprocessing.process.BaseProcess]) -> None:
        self.workers, self.itself = workers, self

    def step(self) -> int:
        return len(self.workers)


def suspended(workers: Loader) -> Iterator[int]:
    while True:
        yield workers.step()


def caught(workers: Loader) -> BaseException:
    """Return an error with a frame that has them."""
    try:
        raise KeyboardInterrupt(workers.step())
    except KeyboardInterrupt as error:
        return error


def begun(workers: Loader) -> Iterator[int]:
    generator = suspended(workers)
    next(generator)
    return generator


HELD: dict[str, Callable[[Loader], object]] = {
    "itself": lambda workers: workers,
    "dict": lambda workers: {"loaders": [(1, workers)]},
    "closure": lambda workers: lambda: workers.step(),
    "method": lambda workers: workers.step,
    "generator": begun,
}
LEFT: dict[str, Callable[[Loader], object]] = {
    "error": caught,
    "module": lambda workers: multiprocessing.process,  # which lists them all
    "function": lambda workers: suspended,
    "class": lambda workers: Loader,
}


@pytest.mark.parametrize(
    ("name", "stays"), [*((n, True) for n in HELD), *((n, False) for n in LEFT)]
)
def test_a_daemon_ends_unless_a_variable_leads_to_it(
    start: Callable[..., multiprocessing.process.BaseProcess],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    stays: bool,
) -> None:
    """By SIGTERM at the latest: torch raises an error in the rank for a worker that is killed."""
    children.note()
    workers = Loader([start(daemon=True), start(daemon=True)])
    variables = [7, "text", [1.0], (HELD | LEFT)[name](workers)]
    sent: list[tuple[int | None, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(children.os, "kill", lambda pid, signum: sent.append((pid, signum)))
        due: list[Callable[[], None]] = []
        children.end(lambda seconds, function: due.append(function), variables)
        while due:
            due.pop()()
    pids = {w.pid for w in workers.workers}
    assert {pid for pid, _ in sent} == (set() if stays else pids)
    assert {signum for _, signum in sent} == (set() if stays else {signal.SIGINT, signal.SIGTERM})


def test_where_there_is_too_much_to_look_at_daemons_stay(
    start: Callable[..., multiprocessing.process.BaseProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    children.note()
    daemon = start(daemon=True)
    monkeypatch.setattr(children, "LOOKED_AT", 100)
    children.end(lambda seconds, function: None, [[[i] for i in range(200)]])
    assert daemon.is_alive()
    daemon.join(timeout=0)
    assert daemon.exitcode is None
