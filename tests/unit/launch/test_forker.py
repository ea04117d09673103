"""What whoever asks a forker hears of a request that comes to nothing."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from labkit.launch.forker import Forker, Job
from labkit.wire import processes


class Plain(Forker):
    files = 0
    ours: socket.socket

    def refusal(self, request: Mapping[str, Any]) -> str:
        return "" if request["kind"] == "any" else "it forks no such thing"

    def job(self, request: Mapping[str, Any], files: list[int]) -> Job:
        raise NotImplementedError


@pytest.fixture
def forker() -> Iterator[Plain]:
    """A forker in this process, with the owner's end of its line."""
    handler = signal.getsignal(signal.SIGCHLD)
    ours, theirs = socket.socketpair()
    made = Plain(theirs)
    made.ours = ours
    yield made
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, handler)
    made.selector.close()
    for end in (ours, *made._ends):
        end.close()


def answer(forker: Plain, request: object) -> dict[str, Any]:
    processes.send_message(forker.ours, request)  # type: ignore[arg-type]
    forker.receive(None)
    forker.fork(forker.backlog.pop())
    return processes.receive_message(forker.ours, [])


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"name": "3", "kind": "other"}, "it forks no such thing"),
        ({"name": "3"}, "it is no request"),
    ],
)
def test_what_is_not_for_it_is_refused_by_name(forker: Plain, request_: Any, reason: str) -> None:
    assert answer(forker, request_) == {"name": "3", "refused": reason}


def test_a_list_is_no_request(forker: Plain) -> None:
    assert answer(forker, ["kind"]) == {"name": "", "refused": "it is no request"}


def test_whoever_asks_hears_that_the_system_cannot_fork(
    forker: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    assert answer(forker, {"name": "3", "kind": "any"}) == {
        "name": "3",
        "refused": "it cannot fork (Resource temporarily unavailable)",
    }


def test_who_asks_at_its_socket_and_says_nothing_is_left(forker: Plain, tmp_path: Path) -> None:
    forker.listen(tmp_path / "forker")
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(tmp_path / "forker"))
        line.shutdown(socket.SHUT_WR)
        forker.receive(None)
        assert line.recv(1) == b""
    assert forker.backlog == []


def test_the_end_of_the_owner_is_the_end(forker: Plain) -> None:
    forker.ours.close()
    assert forker.serve() is None
