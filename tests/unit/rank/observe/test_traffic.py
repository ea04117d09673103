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
    return [traffic._waiting(s.fileno()) for s in sockets]


def settled(*sockets):
    """Read the queues when the loopback has carried what it can."""
    time.sleep(0.1)
    return waiting(*sockets)


def test_what_has_come_waits_until_it_is_read(pair):
    here, there = pair
    assert waiting(here, there) == [0, 0]
    here.sendall(b"12345")
    assert settled(here, there) == [0, 5]
    there.recv(2)
    assert waiting(there) == [3]
    there.recv(3)
    assert waiting(there) == [0]


def test_what_the_other_end_has_no_room_for_waits_to_go_out(pair):
    here, there = pair
    here.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += here.send(bytes(1 << 16))
    out, come = settled(here, there)
    assert out > 0
    assert come > 0
    assert out + come == sent


def test_all_sockets_of_the_process_are_counted(pair):
    here, there = pair
    before = traffic.count_bytes()
    here.sendall(b"12345")
    time.sleep(0.1)
    assert traffic.count_bytes() >= before + 5
    there.recv(5)


def test_a_socket_that_listens_or_is_closed_has_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            assert waiting(server) == [0]  # one waits to be accepted: it is no data
        number = server.fileno()
    assert traffic._waiting(number) == 0


def test_where_the_system_does_not_say_something_may_always_be_on_its_way(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert traffic.count_bytes() == 1


# -- two looks ------------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch):
    """Return looks at numbers that the test sets: bytes, and the time of gloo's threads."""
    found = traffic.Looks()
    monkeypatch.setattr(traffic, "count_bytes", lambda: found.bytes)
    monkeypatch.setattr(cpu_clock, "carriers", lambda: found.carriers)
    found.bytes = found.carriers = 0
    return found


def test_one_look_tells_nothing(looks):
    assert not looks.is_still()
    looks.look()
    assert not looks.is_still()
    looks.look()
    assert looks.is_still()
    looks.forget()
    assert not looks.is_still()


@pytest.mark.parametrize("when", [0, 1])
def test_bytes_at_either_look_are_on_their_way(looks, when):
    for look in range(2):
        looks.bytes = 5 * (look == when)
        looks.look()
    assert not looks.is_still()
    for _ in range(2):
        looks.bytes = 0
        looks.look()
    assert looks.is_still()


def test_gloos_threads_carried_something_if_they_ran(looks):
    looks.look()
    looks.carriers = 1000
    looks.look()
    assert not looks.is_still()
