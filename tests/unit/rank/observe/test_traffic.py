"""Bytes in the queues of this process's sockets: on their way, or come and not read."""

from __future__ import annotations

import contextlib
import socket
import sys
import time

import pytest

from labkit.rank.observe import cpu_clock, traffic

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
    _, before = traffic.count_bytes()
    there.recv(5)
    _, after = traffic.count_bytes()
    assert before - after == 5


def test_a_socket_that_listens_or_is_closed_has_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            assert waiting(server)[0][0] == 0
        number = server.fileno()
    assert traffic._waiting(number, traffic._SIOCINQ) == 0


def test_where_the_system_does_not_say_something_may_always_be_on_its_way(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert traffic.count_bytes() == (1, 0)


# -- two looks ------------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch):
    """Return looks at numbers that the test sets."""
    found = traffic.Looks()
    monkeypatch.setattr(traffic, "count_bytes", lambda: (found.out, found.unread))
    monkeypatch.setattr(cpu_clock, "carriers", lambda: (found.carried, found.awake))
    found.out = found.unread = found.carried = 0
    found.awake = False
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
