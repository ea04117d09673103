"""Shut down connections by their addresses: those and no others."""

from __future__ import annotations

import contextlib
import socket

from labkit.rank import unblock
from labkit.wire.connections import list_connections


@contextlib.contextmanager
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            ours.settimeout(2)
            theirs.settimeout(2)
            yield ours, theirs


def test_a_shut_connection_ends_on_both_sides_and_keeps_its_descriptor():
    with pair() as (ours, theirs):
        assert unblock.shut([(ours.getsockname(), ours.getpeername())]) == 1
        assert (ours.recv(1), theirs.recv(1)) == (b"", b"")
        assert ours.fileno() >= 0


def test_other_connections_stay():
    with pair() as (ours, theirs), pair() as (a, b):
        unblock.shut([(a.getsockname(), a.getpeername())])
        ours.send(b"x")
        assert theirs.recv(1) == b"x"
        assert b.recv(1) == b""


def test_an_address_that_is_nobodys_shuts_nothing():
    with pair() as (ours, _):
        assert unblock.shut([(ours.getsockname(), ("127.0.0.1", 1))]) == 0
        assert unblock.shut([]) == 0


def test_descriptors_do_not_leak():
    with pair() as (ours, _):
        before = len(list_connections())
        for _ in range(5):
            unblock.shut([(ours.getsockname(), ours.getpeername())])
        assert len(list_connections()) <= before
