"""Ranks that ssh starts on other hosts: labkit.start(engines="ssh")."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import labkit
from labkit import Deadlock, LabError, RankDied
from labkit.launch import external, ssh
from tests.conftest import descendants
from tests.support import external_lab
from tests.support.cells import inside
from tests.support.sshd import sshd
from tests.support.system import needs, needs_hosts

HOSTS = {"h1": 2, "h2": 2}


def settings(arguments: list[str], hosts: dict[str, int], mark: str = "") -> dict[str, Any]:
    """Return labkit.start's config; the mark goes into the environment of the ranks."""
    own: dict[str, Any] = {"ssh_args": arguments, "scp_args": arguments}
    if mark:
        own["environment"] = {external_lab.MARK: mark}
    return {"SSHLauncher": own, "SSHEngineSetLauncher": {"engines": hosts}}


@pytest.fixture(scope="module")
def arguments() -> Iterator[list[str]]:
    """An SSH server on loopback with two names; what ssh has to be told to find it."""
    with sshd(list(HOSTS)) as found:
        yield found


def place() -> tuple[str, str, int]:
    """Say where this rank runs: host, folder, process."""
    return socket.gethostname(), os.getcwd(), os.getpid()


def started() -> list[psutil.Process]:
    """List the processes that this one has started, the servers of the test left out."""
    return [p for p in descendants() if p.name() != "sshd"]


@pytest.mark.slow
@needs("sshd")
def test_ranks_work_and_leave_nothing(
    arguments: list[str],
    eventually: Any,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Known by its name: tests beside this one have labs of ssh in the same home.
    folder = Path.home() / ssh.FOLDER / f"of-test-{os.getpid()}"
    monkeypatch.setattr(external.secrets, "token_hex", lambda _: folder.name)
    with labkit.start(engines="ssh", config=settings(arguments, {"h1": 1, "h2": 1})) as lab:
        assert lab.world_size == 2
        external_lab.check_start_of_20(lab)
        external_lab.check_questions(lab)
        assert "ipdb> p number" in capfd.readouterr().out
        # Files of the notebook's folder are found where the host has it.
        assert {p[1] for p in lab.run(place)} == {os.getcwd()}
        assert folder.is_dir()
        keys = [p for p in folder.rglob("*") if "ipcontroller" in p.name]
        assert keys == []
    assert capfd.readouterr() == ("", "")
    eventually(lambda: not folder.exists())
    assert started() == []


@pytest.mark.slow
@needs("sshd")
def test_nothing_outlives_a_killed_kernel(arguments: list[str], tmp_path: Path) -> None:
    hosts = {"h1": 1, "h2": 1}
    external_lab.check_killed_kernel("ssh", lambda mark: settings(arguments, hosts, mark), tmp_path)


def meet_too_late() -> None:
    """Let rank 3 stay away from a collective."""
    import torch
    import torch.distributed as dist

    if dist.get_rank() != 3:
        dist.all_reduce(torch.ones(1))


@pytest.mark.slow
@needs("sshd")
@needs_hosts(reach=True)
def test_two_hosts_with_addresses_of_their_own() -> None:
    from labkit import hosts

    with (
        hosts.network(2, reach=True) as network,
        sshd(list(HOSTS), {host.name: host for host in network}) as found,
    ):
        with labkit.start(4, engines="ssh", config=settings(found, HOSTS)) as lab:
            assert [p[0] for p in lab.run(place)] == ["h1", "h1", "h2", "h2"]
            assert listening(lab) == {network.here, "127.0.0.1"}
            external_lab.check_work(lab)
            with pytest.raises(Deadlock) as stuck:
                lab.run(meet_too_late)
            assert "rank 3" in str(stuck.value)
            assert "all_reduce" in str(stuck.value)
            external_lab.check_work(lab)
            with pytest.raises(RankDied) as caught:
                lab.run(external_lab.die, 1)
            assert str(caught.value).startswith("rank 1 ended with signal 9 (SIGKILL).")
            assert [s.state for s in lab.status()] == ["idle", "dead", "idle", "idle"]
        ranks = [p for host in network for p in host.processes() if p.name() == "python"]
        assert external_lab.alive(ranks) == []


def listening(lab: labkit.Lab) -> set[str]:
    """List the addresses on which this lab's controller listens."""
    controller = inside(lab).cluster.launcher.cluster.controller.process
    found = controller.net_connections("tcp")
    return {c.laddr.ip for c in found if c.status == "LISTEN"}


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "hosts", "message"),
    [
        (2, None, 'engines="ssh" needs to know the hosts and how many ranks each gets: config='),
        (2, {}, "needs to know the hosts"),
        (2, ["h1"], "needs to know the hosts"),
        (5, HOSTS, "5 ranks are more than the hosts were given: 4 in all (h1: 2, h2: 2)."),
        (2, {"h1": "two"}, "The number of ranks of a host is a whole number, not 'two'."),
    ],
)
def test_hosts_that_cannot_be_are_refused_before_anything_starts(
    n: int, hosts: Any, message: str
) -> None:
    config = {} if hosts is None else {"SSHEngineSetLauncher": {"engines": hosts}}
    with pytest.raises(LabError) as caught:
        labkit.start(n, engines="ssh", config=config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert started() == []


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"ssh_args": ["-F", "none", "-o", "BatchMode=yes"]}, "cannot be reached by ssh: "),
        ({"remote_python": "/no/python"}, "Host 'h1' has no Python at '/no/python'; name its own"),
        ({"remote_python": "false"}, "Host 'h1' cannot run a rank with 'false': exit code 1."),
    ],
)
@needs("sshd")
def test_a_host_that_cannot_work_is_named(
    arguments: list[str], own: dict[str, Any], message: str
) -> None:
    config = {
        "SSHLauncher": {"ssh_args": arguments, **own},
        "SSHEngineSetLauncher": {"engines": {"h1": 1}},
    }
    with pytest.raises(LabError) as caught:
        labkit.start(engines="ssh", config=config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert started() == []


def test_a_host_that_does_not_answer_is_named() -> None:
    host = ssh.Host("far", ["sh", "-c", "exec sleep 60", "--"], sys.executable)
    with pytest.raises(LabError, match=r"^Host 'far' did not answer within 0 s\.$"):
        ssh.look([host], seconds=0.2)


def test_a_connection_that_breaks_is_one_sentence() -> None:
    error = subprocess.CalledProcessError(255, [*ssh.HUSH, "ssh", "h1", "python", "--version"])
    assert ssh.refusal(error) == (
        "A rank could not be started: exit code 255 from ssh h1 python --version."
    )
    assert ssh.refusal(subprocess.CalledProcessError(1, ["scp", "file"])) == ""
    assert ssh.refusal(ValueError()) == ""


def test_the_address_is_the_one_that_all_hosts_see(monkeypatch: pytest.MonkeyPatch) -> None:
    class Address:
        def __init__(self, address: str) -> None:
            self.address = address

    interfaces = {"lo": [Address("127.0.0.1")], "eth0": [Address("10.0.0.5"), Address("fe80::1")]}
    monkeypatch.setattr(ssh.psutil, "net_if_addrs", lambda: interfaces)
    assert ssh.choose_address(["127.0.0.1", "127.0.0.1"]) == ("127.0.0.1", "127.0.0.1")
    assert ssh.choose_address(["10.0.0.5", "127.0.0.1"]) == ("10.0.0.5", "10.0.0.5")
    assert ssh.choose_address(["10.0.0.5", "192.168.0.5"]) == ("*", "10.0.0.5")
    assert ssh.choose_address(["203.0.113.1"]) == ("*", "203.0.113.1")  # seen through a router
    assert ssh.choose_address(["fe80::1"]) == ("*", "fe80::1")
    assert ssh.choose_address([""]) == ("*", "")


def test_a_host_can_have_a_user_a_port_and_settings_of_its_own() -> None:
    hosts = ssh.list_hosts(
        {"ann@h1:2222": 1, "h2": {"n": 2, "remote_python": "python4"}, "h3": 0, "h4": 1},
        3,
        ["ssh"],
        ["-q"],
        "python3",
    )
    assert hosts == [
        ssh.Host("ann@h1:2222", ["ssh", "-q", "-p", "2222", "ann@h1"], "python3"),
        ssh.Host("h2", ["ssh", "-q", "h2"], "python4"),
    ]
