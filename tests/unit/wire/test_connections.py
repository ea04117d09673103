"""Both ends of a connection are recognised by their addresses."""

from __future__ import annotations

import contextlib
import os
import socket

import psutil
import pytest

from labkit.wire.connections import list_connections


@contextlib.contextmanager
def connected(host="127.0.0.1", listen="127.0.0.1"):
    """Connect this process with itself; give both ends."""
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    with (
        socket.create_server((listen, 0), family=family, dualstack_ipv6=both) as server,
        socket.create_connection((host, server.getsockname()[1])) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            yield client, accepted


def by_fd():
    return {c.fd: c for c in list_connections()}


def addresses(end):
    return end.getsockname()[:2], end.getpeername()[:2]


def test_both_ends_have_the_addresses_the_other_way_round():
    with connected() as (client, accepted):
        found = by_fd()
        one, other = found[client.fileno()], found[accepted.fileno()]
        assert (one.own, one.other) == addresses(client)
        assert (one.own, one.other) == (other.other, other.own)


def test_a_listening_socket_is_no_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.fileno() not in by_fd()


def test_a_closed_connection_is_gone():
    with connected() as (client, _):
        fd, address = client.fileno(), client.getsockname()
        assert fd in by_fd()
        client.close()
        assert address not in [c.own for c in list_connections() if c.fd == fd]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_an_ipv4_address_of_an_ipv6_socket_is_written_the_same_way():
    with connected(listen="::") as (client, accepted):
        assert accepted.getsockname()[0] == "::ffff:127.0.0.1"
        found = by_fd()
        one, other = found[client.fileno()], found[accepted.fileno()]
        assert (one.own, one.other) == (other.other, other.own)
        assert other.own[0] == "127.0.0.1"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_an_ipv6_address_stays_as_it_is():
    with connected("::1", "::1") as (client, _):
        one = by_fd()[client.fileno()]
        assert (one.own, one.other) == addresses(client)


def test_the_connections_of_a_process_by_its_number():
    with connected() as (client, _):
        assert client.fileno() in [c.fd for c in list_connections(os.getpid())]
        assert not [c for c in list_connections(os.getppid()) if c.own == addresses(client)[0]]


def test_a_process_that_is_not_there():
    with pytest.raises(psutil.NoSuchProcess):
        list_connections(2**22 + 1)
