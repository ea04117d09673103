"""Shut down connections by their addresses: those and no others."""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import timedelta

import pytest

from labkit.base import times
from labkit.rank import unblock
from labkit.rank.observe import p2p_record, traffic
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
        assert unblock.close_connections([(ours.getsockname(), ours.getpeername())]) == 1
        assert (ours.recv(1), theirs.recv(1)) == (b"", b"")
        assert ours.fileno() >= 0


def test_other_connections_stay():
    with pair() as (ours, theirs), pair() as (a, b):
        unblock.close_connections([(a.getsockname(), a.getpeername())])
        ours.send(b"x")
        assert theirs.recv(1) == b"x"
        assert b.recv(1) == b""


def test_an_address_that_is_nobodys_shuts_nothing():
    with pair() as (ours, _):
        assert unblock.close_connections([(ours.getsockname(), ("127.0.0.1", 1))]) == 0
        assert unblock.close_connections([]) == 0


def test_a_default_time_limit_of_the_learners_changes_no_connection():
    with pair() as (_, theirs), pair() as (a, b):
        theirs.settimeout(None)
        socket.setdefaulttimeout(5)
        try:
            unblock.close_connections([(a.getsockname(), a.getpeername())])
            traffic.count_bytes()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(theirs.fileno())
        assert b.recv(1) == b""


def test_descriptors_do_not_leak():
    with pair() as (ours, _):
        before = len(list_connections())
        for _ in range(5):
            unblock.close_connections([(ours.getsockname(), ours.getpeername())])
        assert len(list_connections()) <= before


class Group:
    """A group of three as far as a receive in it matters."""

    def rank(self):
        return 2

    def size(self):
        return 3


@pytest.fixture
def receives(monkeypatch):
    """Return the receives that were made to fail: the peer, the tag, and their time limit."""
    made = []

    def issue(group, tensors, peer, tag):
        return peer, tag

    def wait(work, limit):
        made.append((*work, limit))
        raise RuntimeError("Timed out waiting 1ms for recv operation to complete")

    monkeypatch.setattr(p2p_record, "original", {"recv": issue, "wait": wait})
    monkeypatch.setattr(p2p_record, "dropped", {})
    return made


@pytest.mark.parametrize(
    ("lost", "end"),
    [(("recv", 1, 5, 1), (1, 5)), (("recv_any", -1, 5, 1), (0, 5))],
    ids=["from one", "from any"],
)
def test_a_group_in_which_a_receive_was_dropped_is_closed_by_a_time_limit(receives, lost, end):
    p2p_record.dropped[Group()] = [("send", 0, 0, 1), lost]
    assert unblock.expire() == 1
    assert receives == [(*end, timedelta(seconds=times.RECEIVE_FAILS))]


def test_a_group_in_which_only_a_send_was_dropped_hears_that_connections_end(receives):
    p2p_record.dropped[Group()] = [("send", 0, 0, 1)]
    assert unblock.expire() == 0
    assert receives == []


def test_nothing_is_made_to_fail_where_torch_hides_its_receives(receives, monkeypatch):
    p2p_record.dropped[Group()] = [("recv", 0, 0, 1)]
    monkeypatch.setattr(p2p_record, "original", {})
    assert unblock.expire() == 0
