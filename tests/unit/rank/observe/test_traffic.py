"""Bytes in the queues of this process's sockets: on their way, or come and not read."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time

import pytest

from labkit.base import times
from labkit.rank import os_threads
from labkit.rank.observe import traffic
from labkit.wire.connections import list_connections

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux")


@pytest.fixture
def pair():
    """Two ends of a connection over the loopback, as gloo has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    with here, there:
        yield here, there


def waiting(*sockets):
    """Return the bytes of each socket that have to go out, and that have come."""
    requests = traffic._SIOCOUTQ, traffic._SIOCINQ
    return [tuple(traffic._waiting(s.fileno(), r) for r in requests) for s in sockets]


def settled(*sockets):
    """Read the queues when the loopback has carried what it can."""
    time.sleep(0.1)
    return waiting(*sockets)


def test_what_has_come_waits_until_it_is_read(pair):
    here, there = pair
    assert waiting(here, there) == [(0, 0), (0, 0)]
    here.sendall(b"12345")
    assert settled(here, there) == [(0, 0), (0, 5)]
    there.recv(2)
    assert waiting(there) == [(0, 3)]
    there.recv(3)
    assert waiting(there) == [(0, 0)]


def test_what_the_other_end_has_no_room_for_waits_to_go_out(pair):
    here, there = pair
    here.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += here.send(bytes(1 << 16))
    (out, _), (_, come) = settled(here, there)
    assert out > 0
    assert come > 0
    assert out + come == sent


def test_all_sockets_of_the_process_are_counted(pair):
    here, there = pair
    here.sendall(b"12345")
    time.sleep(0.1)
    before = traffic.count_bytes()
    there.recv(5)
    after = traffic.count_bytes()
    assert before.unread - after.unread == 5


def test_what_the_other_end_has_no_room_for_is_on_no_link(pair, monkeypatch, eventually):
    here, there = pair
    here.setblocking(False)
    before = traffic.count_bytes()
    with contextlib.suppress(BlockingIOError):
        while True:
            here.send(bytes(1 << 16))
    settled(here, there)
    eventually(lambda: traffic.count_bytes().out == before.out)
    monkeypatch.setattr(traffic, "_ROOM", struct.Struct("=1000xI"))  # an older kernel
    assert traffic.count_bytes().out > before.out


def test_what_has_been_carried_is_counted_whether_it_is_read_or_not(pair):
    here, there = pair
    before = traffic.count_bytes()
    here.sendall(b"12345")
    time.sleep(0.1)
    after = traffic.count_bytes()
    there.recv(5)
    assert after.moved - before.moved == 10  # they left one end and came to the other
    assert traffic.count_bytes().moved == after.moved


def test_an_older_kernel_does_not_say_what_was_carried(pair, monkeypatch):
    monkeypatch.setattr(traffic, "_BYTES_MOVED", struct.Struct("=1000xQQ"))
    assert traffic.count_bytes().moved == -1


def test_the_connections_of_the_notebook_are_left_out(pair, monkeypatch):
    here, there = pair
    monkeypatch.setattr(traffic, "_notebook", frozenset())
    before = traffic.count_bytes()
    there.sendall(b"12345")
    time.sleep(0.1)
    assert traffic.count_bytes().unread - before.unread == 5
    found = [c for c in list_connections() if c.fd == here.fileno()]
    monkeypatch.setattr(traffic, "list_connections", lambda: found)
    traffic.leave_out_notebook()
    assert traffic.count_bytes().unread == before.unread
    with socket.create_server(("127.0.0.1", 0)) as server:  # the group's, made later
        late = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    with late, other:
        late.sendall(b"123")
        time.sleep(0.1)
        assert traffic.count_bytes().unread - before.unread == 3


def test_a_socket_that_listens_or_is_closed_has_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            assert waiting(server)[0][0] == 0
        number = server.fileno()
    assert traffic._waiting(number, traffic._SIOCINQ) == 0


def test_where_the_system_does_not_say_something_may_always_be_on_its_way(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert traffic.count_bytes() == (1, 0, -1)


# -- two looks ------------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch):
    """Return looks at numbers that the test sets."""
    found = traffic.Looks()
    monkeypatch.setattr(
        traffic, "count_bytes", lambda: traffic.Bytes(found.out, found.unread, found.moved)
    )
    monkeypatch.setattr(
        os_threads,
        "carriers",
        lambda: os_threads.Carriers(found.carried, found.runs, {7: (found.used, found.awake)}),
    )
    found.out = found.unread = found.moved = found.carried = found.used = 0
    found.runs = found.awake = False
    return found


def look(looks, **numbers):
    vars(looks).update(numbers)
    looks.look()


def test_one_look_tells_nothing(looks):
    assert not looks.is_still()
    look(looks)
    assert not looks.is_still()
    look(looks)
    assert looks.is_still()
    looks.forget()
    assert not looks.is_still()


@pytest.mark.parametrize("when", [0, 1])
def test_bytes_that_have_to_go_out_at_either_look_are_on_their_way(looks, when):
    for n in range(2):
        look(looks, out=5 * (n == when))
    assert not looks.is_still()
    look(looks, out=0)
    look(looks)
    assert looks.is_still()


def test_what_has_come_and_is_not_taken_is_not_on_its_way(looks):
    look(looks, unread=5)
    look(looks)
    assert looks.is_still()
    look(looks, unread=9)  # more has come
    assert not looks.is_still()


def test_gloos_threads_carried_something_if_they_ran(looks):
    look(looks)
    look(looks, carried=1000)
    assert not looks.is_still()


def test_gloos_thread_that_moves_data_is_awake_now_and_then_by_chance(looks):
    look(looks, awake=True)
    look(looks, awake=False)
    assert looks.is_still()
    look(looks, awake=True)
    look(looks, awake=True)
    assert not looks.is_still()


@pytest.mark.parametrize("when", [0, 1])
def test_a_thread_of_a_collective_that_has_work_is_not_still(looks, when):
    for n in range(2):
        look(looks, runs=n == when)
    assert not looks.is_still()


MUCH = times.SPINNING_NANOSECONDS


def test_gloos_thread_that_runs_and_moves_nothing_runs_in_vain(looks):
    look(looks, awake=True, unread=5)
    look(looks, used=MUCH - 1)
    assert not looks.is_still()  # it may not have got round to what there is
    look(looks, used=MUCH)
    assert looks.is_still()
    look(looks, used=2 * MUCH, moved=1)  # now it has moved something
    look(looks)
    assert not looks.is_still()
    look(looks, used=3 * MUCH)
    assert looks.is_still()


def test_gloos_thread_that_waits_for_the_processor_has_not_run_in_vain(looks):
    for _ in range(5):
        look(looks, awake=True)
        assert not looks.is_still()


def test_where_nobody_counts_what_is_carried_gloos_thread_never_runs_in_vain(looks):
    for n in range(3):
        look(looks, awake=True, moved=-1, used=n * MUCH)
    assert not looks.is_still()


def test_each_thread_of_gloos_has_to_run_in_vain(looks, monkeypatch):
    both = {1: (0, True), 2: (0, True)}
    monkeypatch.setattr(os_threads, "carriers", lambda: os_threads.Carriers(0, False, dict(both)))
    look(looks)
    both[1] = (MUCH, True)
    look(looks)
    assert not looks.is_still()
    both[2] = (MUCH, True)
    look(looks)
    assert looks.is_still()
    both[3] = (9 * MUCH, True)  # of a group that was made just now
    look(looks)
    look(looks)
    assert not looks.is_still()
