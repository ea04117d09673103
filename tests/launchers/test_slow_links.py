"""Ranks on two hosts whose link is slow, is down for a moment, or loses packets: no deadlock.

Every rank has come and made its call, and nothing moves: the data is on its way, and TCP sends it
again when the link is back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import labkit
from labkit import hosts
from tests.support.cells import results, send_cell, watch_cell
from tests.support.sshd import sshd
from tests.support.system import needs, needs_hosts

pytestmark = [pytest.mark.slow, needs("sshd"), needs_hosts(reach=True)]

#: After which a program that hangs is ended, as a stop button would.
SECONDS = 90.0

QDISC = "tc qdisc {} dev eth0 root"
#: 1 MB/s.
SLOW = QDISC.format("replace") + " tbf rate 8mbit burst 64kb latency 200ms"
FAST = QDISC.format("del") + " 2>/dev/null || true"
#: A queue that has no place for a packet.
LOST = QDISC.format("replace") + " pfifo limit 0"
#: Everything is lost for 20 ms of each 100 ms, for five seconds.
LOSSY = f"for i in $(seq 50); do {LOST}; sleep 0.02; {FAST}; sleep 0.08; done"


def lose(seconds: float) -> str:
    return f"{LOST}; sleep {seconds}; {FAST}"


def unplug(seconds: float) -> str:
    return f"ip link set eth0 down; sleep {seconds}; ip link set eth0 up"


@dataclasses.dataclass(frozen=True)
class Program:
    """A cell for a rank on each of two hosts, what it must show, and what ails the hosts' link.

    ``link`` is a shell script for each of the hosts in ``where``, run ``after`` seconds into the
    cell; None: before it.
    """

    name: str
    code: str
    expected: tuple[object, object]
    link: str
    after: float | None = None
    where: tuple[int, ...] = (0, 1)


PROGRAMS = [
    Program(
        "an all_reduce of 4 MB over 1 MB/s",
        """
        x = torch.ones(1_000_000)
        dist.all_reduce(x)
        x.sum().item()
        """,
        (2e6, 2e6),
        SLOW,
    ),
    Program(
        "a message of 4 MB over 1 MB/s",
        """
        x = torch.full((1_000_000,), 1.0 - rank)
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
        x.mean().item()
        """,
        (1.0, 1.0),
        SLOW,
    ),
    Program(
        "a receiver from any over 1 MB/s, while the sender has a second message to send",
        """
        x = torch.zeros(500_000)
        if rank == 1:
            works = [dist.isend(torch.ones(500_000), 0) for _ in range(2)]
            for work in works:
                work.wait()
        else:
            total = 0.0
            for _ in range(2):
                dist.recv(x)
                total += x.mean().item()
        total if rank == 0 else None
        """,
        (2.0, None),
        SLOW,
    ),
    Program(
        "DDP with 360,000 parameters over 1 MB/s",
        """
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(600, 600, bias=False))
        model(torch.full((1, 600), 1.0 + rank)).sum().backward()
        model.module.weight.grad.mean().item()
        """,
        (1.5, 1.5),
        SLOW,
    ),
    Program(
        "a large object is gathered over 1 MB/s, then a barrier",
        """
        out = [None] * 2
        dist.all_gather_object(out, bytes(2_000_000 * (1 + rank)))
        dist.barrier()
        sum(map(len, out))
        """,
        (6_000_000, 6_000_000),
        SLOW,
    ),
    Program(
        "the link is down for two seconds in the middle of many all_reduces",
        """
        import time
        x, end = torch.ones(1000), time.monotonic() + 3
        for _ in range(300):
            dist.all_reduce(x)
            x /= 2
            time.sleep(0.005)
        x.mean().item()
        """,
        (1.0, 1.0),
        lose(2),
        0.5,
    ),
    Program(
        "the link is down when a message is sent",
        """
        import time
        x = torch.full((10,), float(rank))
        if rank == 1:
            time.sleep(1)
            dist.send(x, 0)
        else:
            dist.recv(x, 1)
        x.mean().item()
        """,
        (1.0, 1.0),
        lose(2.5),
        0.5,
    ),
    Program(
        "the link of one host is down while a group is made",
        """
        import time
        time.sleep(1)
        group = dist.new_group([0, 1])
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        x.item()
        """,
        (2.0, 2.0),
        lose(2.5),
        0.7,
        (1,),
    ),
    Program(
        "the cable of one host is pulled for two seconds before a barrier",
        """
        import time
        time.sleep(1)
        dist.barrier()
        "passed"
        """,
        ("passed", "passed"),
        unplug(2),
        0.5,
        (1,),
    ),
    Program(
        "the link goes down in the middle of a large all_reduce",
        """
        x = torch.ones(3_000_000)
        dist.all_reduce(x)
        x.sum(dtype=torch.float64).item()
        """,
        (6e6, 6e6),
        f"{QDISC.format('replace')} tbf rate 40mbit burst 64kb latency 200ms; sleep 1; {lose(2)}",
        0.0,
    ),
    Program(
        "a link that loses everything in a fifth of the time",
        """
        x = torch.ones(2_000_000)
        for _ in range(10):
            dist.all_reduce(x)
            x /= 2
        x.mean().item()
        """,
        (1.0, 1.0),
        LOSSY,
        0.0,
    ),
    Program(
        "a slow link and a rank that comes late",
        """
        import time
        x = torch.ones(250_000)
        time.sleep(2.5 * rank)
        dist.broadcast(x, 1)
        dist.all_reduce(x)
        x.mean().item()
        """,
        (2.0, 2.0),
        SLOW,
    ),
]


@dataclasses.dataclass(frozen=True)
class Site:
    """Two hosts and a lab with a rank on each."""

    network: hosts.Network
    lab: labkit.Lab

    def do(self, script: str, where: tuple[int, ...] = (0, 1)) -> None:
        """Run a shell script on some hosts at the same time; return when each has ended."""
        running = [self.network[i].popen(["sh", "-c", script]) for i in where]
        for process in running:
            assert process.wait(60) == 0

    def run(self, code: str) -> list[str | None]:
        """Run a cell; return what its last lines show."""
        sent = send_cell(self.lab, f"#px In[7]\n{code}\n")
        finished = watch_cell(sent, SECONDS)
        assert not finished.ending.kind, finished.ending
        return results(finished.outcomes)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with (
        hosts.network(2, reach=True) as network,
        sshd(["h1", "h2"], {host.name: host for host in network}) as arguments,
        labkit.start(
            engines="ssh",
            config={
                "SSHLauncher": {"ssh_args": arguments, "scp_args": arguments},
                "SSHEngineSetLauncher": {"engines": {"h1": 1, "h2": 1}},
            },
        ) as lab,
    ):
        yield Site(network, lab)


@contextlib.contextmanager
def in_background(delay: float, do: Callable[[], None]) -> Iterator[None]:
    """Do something ``delay`` seconds from now; wait for its end, and raise what it raised."""
    failures: list[BaseException] = []

    def work() -> None:
        time.sleep(delay)
        try:
            do()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_bad_link_is_no_deadlock(site: Site, program: Program) -> None:
    try:
        site.run("world_before = dist.group.WORLD")
        with contextlib.ExitStack() as stack:
            if program.after is None:
                site.do(program.link, program.where)
            else:
                do = lambda: site.do(program.link, program.where)  # noqa: E731
                stack.enter_context(in_background(program.after, do))
            shown = site.run(inspect.cleandoc(program.code))
        expected = [None if value is None else repr(value) for value in program.expected]
        assert shown == expected
        site.do(FAST)
        add_up = "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\n"
        same = site.run(add_up + "(dist.group.WORLD is world_before, x.item())")
        assert same == [repr((True, 3.0))] * 2
    except BaseException:
        site.do(f"ip link set eth0 up; {FAST}")
        site.lab.restart()
        raise
