"""Both ends of a connection are recognised by their addresses."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from labkit.wire.connections import list_connections, list_connections_of


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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_connections_of_processes_by_their_numbers(host):
    if host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("needs IPv6")
    with connected(host, host) as (client, accepted):
        found = list_connections_of([os.getpid(), os.getppid()])
        assert sorted(found[os.getpid()]) == list_connections()
        assert addresses(client) in [(c.own, c.other) for c in found[os.getpid()]]
        assert addresses(client) not in [(c.own, c.other) for c in found[os.getppid()]]
        assert accepted.fileno() in [c.fd for c in found[os.getpid()]]


def test_a_process_that_is_not_there_is_left_out():
    assert list_connections_of([2**22 + 1]) == {}


def test_a_look_does_not_change_how_a_socket_waits():
    with connected() as (client, _):
        socket.setdefaulttimeout(5)
        try:
            assert client.fileno() in by_fd()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(client.fileno())


def test_other_files_and_sockets_are_no_connections(tmp_path):
    unix, other_end = socket.socketpair()
    with (
        unix,
        other_end,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram,
        open(tmp_path / "file", "w") as file,
    ):
        datagram.connect(("127.0.0.1", 9))
        found = by_fd()
        assert not {datagram.fileno(), unix.fileno(), file.fileno()} & found.keys()
