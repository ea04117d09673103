"""By which address ranks on several hosts reach one another."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace

import psutil
import pytest

from labkit import LabError
from labkit.launch.placement import Place
from labkit.rank import process_group
from labkit.runtime import process_group as manager
from labkit.wire import remote_calls
from labkit.wire.connections import Connection

LOOPBACK = Connection(3, ("127.0.0.1", 40001), ("127.0.0.1", 5555))
OUTSIDE = Connection(4, ("10.0.0.7", 40002), ("10.0.0.1", 5555))


@pytest.mark.parametrize(
    ("connections", "name", "found"),
    [
        ([LOOPBACK, OUTSIDE], "10.9.9.9", "10.0.0.7"),
        ([LOOPBACK], "10.9.9.9", "10.9.9.9"),
        ([LOOPBACK], "127.0.1.1", ""),  # what Debian writes into /etc/hosts
        ([Connection(5, ("fe80::1%eth0", 1), ("fe80::2%eth0", 2))], "127.0.1.1", ""),
        ([], OSError("no such name"), ""),
    ],
)
def test_a_host_knows_its_address_by_its_connections_or_its_name(
    monkeypatch: pytest.MonkeyPatch, connections: list[Connection], name: object, found: str
) -> None:
    def resolve(host: str) -> str:
        if isinstance(name, OSError):
            raise name
        return str(name)

    monkeypatch.setattr(process_group, "list_connections", lambda: connections)
    monkeypatch.setattr(socket, "gethostbyname", resolve)
    assert process_group.find_address() == found


def test_the_address_towards_another_host_is_never_loopback() -> None:
    assert process_group.address_towards("127.0.0.1") == ""
    assert process_group.address_towards("255.255.255.255") == ""  # no way there
    own = {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    assert process_group.address_towards(manager.ANYWHERE) in {"", *own}


def test_gloo_takes_the_interface_with_the_address_unless_it_was_told_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_group, "_address", "")
    interfaces = {"lo": ["127.0.0.1"], "eth1": ["10.0.0.7"]}
    made = {n: [SimpleNamespace(address=a) for a in found] for n, found in interfaces.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: made)
    for before, after in (("", "eth1"), ("ib0", "ib0")):
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", before)
        if not before:
            monkeypatch.delenv("GLOO_SOCKET_IFNAME")
        process_group.use_address("10.0.0.7")
        assert os.environ["GLOO_SOCKET_IFNAME"] == after
        assert process_group.address() == "10.0.0.7"


class Ranks:
    """Four ranks on two hosts, of which one, with the controller, does not know its address."""

    def __init__(self, towards: str) -> None:
        hosts = ["a", "a", "b", "b"]
        self.places = [
            Place(i, i + 10, host, 1, i % 2, 2, "cpu", "gloo", 1) for i, host in enumerate(hosts)
        ]
        self.towards = towards
        self.asked: list[object] = []

    def remote_call(self, calls: dict[int, remote_calls.Call[str]]) -> list[str]:
        self.asked.append(calls)
        if remote_calls.find_address() in calls.values():
            return ["" if engine < 12 else "10.0.0.7" for engine in calls]
        assert list(calls) == [10, 11]
        return [self.towards] * 2


def test_a_host_that_does_not_know_looks_towards_one_that_does() -> None:
    ranks = Ranks("10.0.0.1")
    found = manager.find_addresses(ranks, range(4))  # type: ignore[arg-type]
    assert found == {0: "10.0.0.1", 1: "10.0.0.1", 2: "10.0.0.7", 3: "10.0.0.7"}
    assert ranks.asked[1] == dict.fromkeys([10, 11], remote_calls.address_towards("10.0.0.7"))


def test_a_host_without_an_address_is_named() -> None:
    with pytest.raises(LabError, match=r"^The host a has no address by which other hosts reach it"):
        manager.find_addresses(Ranks(""), range(4))  # type: ignore[arg-type]
