"""Which flushes of a rank are served at once, and that none is forgotten."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.rank import streams
from labkit.rank.streams import BURST, RATE, Flushing, Tap


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


def write(flush: Flushing) -> None:
    """Flush a stream after something was written to it."""
    flush.note_write()
    flush()


def test_the_first_flushes_are_served_at_once_and_later_ones_are_owed() -> None:
    stream, now = Stream(), [0.0]
    flush = Flushing(stream, lambda: now[0])
    for _ in range(BURST):
        write(flush)
    assert (stream.flushes, flush.owes) == (BURST, False)
    write(flush)
    assert (stream.flushes, flush.owes) == (BURST, True)
    flush.settle()
    flush.settle()
    assert (stream.flushes, flush.owes) == (BURST + 1, False)


def test_the_end_of_a_cell_waits_for_no_rate() -> None:
    stream = Stream()
    flush = Flushing(stream, lambda: 0.0)
    for _ in range(BURST + 1):
        write(flush)
    assert flush.owes
    flush.now()
    assert (stream.flushes, flush.owes) == (BURST + 1, False)
    flush.now()
    assert stream.flushes == BURST + 1


def test_who_flushes_now_and_then_never_waits() -> None:
    stream, now = Stream(), [0.0]
    flush = Flushing(stream, lambda: now[0])
    for _ in range(2 * BURST):
        now[0] += 1.01 / RATE
        write(flush)
    assert stream.flushes == 2 * BURST


def test_a_flush_waits_for_nothing_where_nothing_was_written() -> None:
    stream = Stream()
    flush = Flushing(stream)
    flush()  # what was written before is not known
    flush()
    assert stream.flushes == 1
    write(flush)
    assert stream.flushes == 2


def test_what_is_written_during_a_flush_waits_for_the_next_one() -> None:
    stream: Any = Stream()
    original = stream.flush
    stream.flush = lambda: [original(), flush.note_write()]  # another thread, in between
    flush = Flushing(stream)
    flush()
    flush()
    assert stream.flushes == 2


@pytest.fixture
def pipe() -> Iterator[tuple[int, list[bytes], Tap]]:
    """A pipe, what a thread has read from it, and the tap of both."""
    reader, writer = os.pipe()
    found: list[bytes] = []

    def read() -> None:
        while part := os.read(reader, 100):
            time.sleep(0.01)  # as one that has to wait for the interpreter
            found.append(part)

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.01)
    yield writer, found, Tap(writer, thread)
    os.close(writer)
    thread.join()
    os.close(reader)


def test_a_tap_tells_that_something_came(pipe: tuple[int, list[bytes], Tap]) -> None:
    writer, _, tap = pipe
    before = tap.mark()
    assert before is not None
    assert tap.mark() == before
    os.write(writer, b"text")
    assert tap.mark() != before


def test_what_c_code_has_written_is_waited_for(pipe: tuple[int, list[bytes], Tap]) -> None:
    writer, found, tap = pipe
    stream = Stream()
    flush = Flushing(stream, tap=tap)
    flush()
    for number in range(1, 4):
        os.write(writer, b"text")
        flush.wait_for_c()
        assert len(found) == number
        flush()
        assert stream.flushes == number + 1
    flush()
    assert stream.flushes == 4


def test_a_flush_before_what_was_read_is_given_is_no_flush_of_it() -> None:
    reader, writer = os.pipe()
    has_read, gives = threading.Event(), threading.Event()

    def read() -> None:
        os.read(reader, 100)
        has_read.set()
        gives.wait(20)  # as one that waits for a processor

    thread = threading.Thread(target=read)
    thread.start()
    stream = Stream()
    flush = Flushing(stream, tap=Tap(writer, thread))
    os.write(writer, b"text")
    assert has_read.wait(20)
    flush()
    flush()  # nothing was noted in between, and yet there is something to come
    gives.set()
    thread.join()
    os.close(reader)
    os.close(writer)
    assert stream.flushes == 2


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
        write(flush)
    assert (stream.flushes, flush.owes) == (BURST + 5, False)


def test_streams_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(streams.sys, "stdout", stream)
    streams.install()
    stream.flush()
    assert stream.flushes == 1
