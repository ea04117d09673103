"""Run the random programs on two hosts: behind a slow link, and one that is down now and then.

The verdicts must be the same as on one machine, however long the data takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import labkit
from labkit import hosts
from tests.support import programs
from tests.support.conda_versions import ROOT
from tests.support.outages import Outages
from tests.support.programs import Mix
from tests.support.sshd import sshd
from tests.support.system import needs, needs_hosts
from tests.support.verdicts import Bounds, Checker, check_many

pytestmark = [pytest.mark.slow, needs("sshd"), needs_hosts(reach=True)]

#: Programs drawn for each link: this many correct ones, and as many with a fault.
SHARE = 12
#: Bits per second that a host can send; a tensor of so many elements takes 0.16 s.
RATE, ELEMENTS = "20mbit", 50_000
BOUNDS = Bounds(slow=True)


@contextlib.contextmanager
def lab_on_two_hosts(rate: str | None) -> Iterator[tuple[labkit.Lab, hosts.Network]]:
    """Start a lab with two ranks on each of two hosts."""
    with (
        hosts.network(2, rate=rate, reach=True) as network,
        sshd(["h1", "h2"], {host.name: host for host in network}) as arguments,
    ):
        config = {
            "SSHLauncher": {
                "ssh_args": arguments,
                "scp_args": arguments,
                "environment": {"PYTHONPATH": str(ROOT)},  # what is tested, also if not installed
            },
            "SSHEngineSetLauncher": {"engines": {"h1": 2, "h2": 2}},
        }
        with labkit.start(4, engines="ssh", config=config) as lab:
            yield lab, network


@pytest.fixture(scope="module")
def slow() -> Iterator[labkit.Lab]:
    with lab_on_two_hosts(RATE) as (lab, _):
        yield lab


@pytest.fixture(scope="module")
def broken() -> Iterator[labkit.Lab]:
    with lab_on_two_hosts(None) as (lab, network), Outages(network) as outages:
        yield lab
    assert outages.count


@pytest.mark.parametrize("strategy", [programs.correct, programs.faulty])
def test_no_verdict_is_wrong_on_a_slow_link(
    slow: labkit.Lab, strategy: object, capsys: pytest.CaptureFixture[str]
) -> None:
    mix = Mix(limit=8.0, elements=ELEMENTS)
    check_many(Checker(slow, BOUNDS), strategy, mix, SHARE, capsys)


@pytest.mark.parametrize("strategy", [programs.correct, programs.faulty])
def test_no_verdict_is_wrong_on_a_link_with_outages(
    broken: labkit.Lab, strategy: object, capsys: pytest.CaptureFixture[str]
) -> None:
    # A time limit would run out in an outage.
    check_many(Checker(broken, BOUNDS), strategy, Mix(limit=0), SHARE, capsys)
