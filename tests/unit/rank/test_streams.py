"""Which flushes of a rank are served at once, and that none is forgotten."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.rank import streams
from labkit.rank.streams import BURST, RATE, Flushing


class Stream:
    """A stream that counts its flushes; its publisher's thread is one that runs."""

    def __init__(self) -> None:
        self.flushes = 0
        self.sent: list[str] = []
        self.pub_thread = SimpleNamespace(thread=threading.main_thread(), send_multipart=self.send)

    def flush(self) -> None:
        self.flushes += 1

    def send(self, message: str) -> None:
        self.sent.append(f"{message} after {self.flushes}")


def test_the_first_flushes_are_served_at_once_and_later_ones_are_owed() -> None:
    stream, now = Stream(), [0.0]
    flush = Flushing(stream, lambda: now[0])
    for _ in range(BURST):
        flush()
    assert (stream.flushes, flush.owes) == (BURST, False)
    flush()
    assert (stream.flushes, flush.owes) == (BURST, True)
    flush.settle()
    flush.settle()
    assert (stream.flushes, flush.owes) == (BURST + 1, False)


def test_who_flushes_now_and_then_never_waits() -> None:
    stream, now = Stream(), [0.0]
    flush = Flushing(stream, lambda: now[0])
    for _ in range(2 * BURST):
        now[0] += 1.01 / RATE
        flush()
    assert stream.flushes == 2 * BURST


def test_what_is_owed_leaves_before_anything_else() -> None:
    stream: Any = Stream()
    stream.pub_thread.thread = threading.Thread()  # another one
    stream.flush = flush = Flushing(stream, lambda: 0.0)
    streams._settle_before_others(stream)
    flush.owes = True
    stream.pub_thread.send_multipart("a picture")
    stream.pub_thread.send_multipart("the end")
    assert stream.sent == ["a picture after 1", "the end after 1"]


def test_the_publishers_own_thread_does_not_wait_for_itself() -> None:
    stream: Any = Stream()
    stream.flush = flush = Flushing(stream, lambda: 0.0)
    streams._settle_before_others(stream)
    flush.owes = True
    stream.pub_thread.send_multipart("text")
    assert (stream.sent, flush.owes) == (["text after 0"], True)


def test_a_forked_process_flushes_by_itself() -> None:
    stream = Stream()
    stream.pub_thread.thread = threading.Thread()  # a fork leaves no other thread alive
    flush = Flushing(stream, lambda: 0.0)
    for _ in range(BURST + 5):
        flush()
    assert (stream.flushes, flush.owes) == (BURST + 5, False)


def test_streams_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(streams.sys, "stdout", stream)
    streams.install()
    stream.flush()
    assert stream.flushes == 1
