"""Whose process is at the other end of a connection."""

from __future__ import annotations

import os
import socket

import pytest

from labkit.guard import peers


@pytest.fixture(params=["127.0.0.1", "::", "::1"])
def ends(request):
    """Return both ends of a connection, over IPv4, from IPv4 to IPv6, and over IPv6."""
    family = socket.AF_INET if request.param == "127.0.0.1" else socket.AF_INET6
    try:
        server = socket.create_server((request.param, 0), family=family, dualstack_ipv6=False)
        if request.param == "::":
            server.close()
            server = socket.create_server(("::", 0), family=family, dualstack_ipv6=True)
    except OSError:
        pytest.skip("no IPv6 here")
    host = "::1" if request.param == "::1" else "127.0.0.1"
    with server, socket.create_connection((host, server.getsockname()[1])) as one:
        other, _ = server.accept()
        with other:
            yield one, other


@pytest.mark.parametrize("asks", [True, False])
def test_an_own_connection(ends, asks, monkeypatch):
    monkeypatch.setattr(peers, "_answers", lambda: asks)
    assert [peers.is_own(end) for end in ends] == [True, True]


@pytest.mark.parametrize("asks", [True, False])
def test_the_user_of_a_socket(ends, asks, monkeypatch):
    monkeypatch.setattr(peers, "_answers", lambda: asks)
    one, _ = ends
    assert peers.find_user(one.getsockname()[:2], one.getpeername()[:2]) == os.geteuid()
    assert peers.find_user(one.getsockname()[:2], one.getsockname()[:2]) is None


def test_one_of_another_user(ends, monkeypatch):
    monkeypatch.setattr(peers.os, "geteuid", lambda: 4711)
    monkeypatch.setattr(peers, "_answers", lambda: True)
    assert not any(peers.is_own(end) for end in ends)


def test_one_that_has_ended_is_nobodys(ends):
    one, other = ends
    one.close()
    assert not peers.is_own(other)


@pytest.mark.parametrize("asks", [True, False])
def test_one_that_nobody_has_accepted_is_nobodys(asks, monkeypatch):
    monkeypatch.setattr(peers, "_answers", lambda: asks)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        ends = one.getpeername(), one.getsockname()
        assert peers.find_user(*ends) is None
        with server.accept()[0]:
            assert peers.find_user(*ends) == os.geteuid()


def test_a_unix_socket(monkeypatch):
    one, other = socket.socketpair()
    with one, other:
        assert peers.is_own(one)
        monkeypatch.setattr(peers.os, "geteuid", lambda: 4711)
        assert not peers.is_own(one)


def test_addresses_of_this_host():
    assert all(map(peers.is_local, ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"]))
    assert not peers.is_local("192.0.2.1")  # nobody's (RFC 5737)
