"""Make a network: hosts, the switch between them, and the way to this machine."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator

from ..base import times
from ..base.errors import LabError, StartError, UsageError
from . import commands, namespaces, rights
from .host import Host

# Without its own hostname and a hosts file with all names, no agent of torchrun recognises itself
# as the rendezvous host. The files live in a tmpfs that lasts as long as their mounts.
_SET_UP = """
hostname {name}
mount -t tmpfs -o size=256k labkit /tmp
printf '%s\\n' {names} > /tmp/hosts
grep -v '^hosts:' /etc/nsswitch.conf > /tmp/nsswitch.conf
echo 'hosts: files' >> /tmp/nsswitch.conf
mount --bind /tmp/hosts /etc/hosts
mount --bind /tmp/nsswitch.conf /etc/nsswitch.conf
umount /tmp
ip link set lo up
ip address add {address}/24 dev eth0
ip link set eth0 up
"""
# The delay comes first, then the queue for the link; netem's own queue must never be full.
_DELAY = "tc qdisc add dev eth0 root handle 1: netem delay {delay} limit 1000000"
_RATE = "tc qdisc add dev eth0 {place} tbf rate {rate} burst 64kb latency {queue}"
#: Begins the name of the link by which this machine reaches hosts; their subnet's number ends it.
_LINK = "labkit"
_TIME = r"[1-9]\d*[um]?s"


def unavailable_reason(
    *,
    rate: str | None = None,
    delay: str | None = None,
    queue: str | None = None,
    reach: bool = False,
) -> str:
    """Return in a sentence why no hosts can be made here; "" if they can. Found by making one.

    The parameters are those of ``network``.

    Examples
    --------
    >>> labkit.hosts.unavailable_reason()
    ''
    """
    try:
        network(1, rate=rate, delay=delay, queue=queue, reach=reach).close()
    except LabError as error:
        return str(error)
    return ""


def network(
    n: int,
    *,
    rate: str | None = None,
    delay: str | None = None,
    queue: str | None = None,
    reach: bool = False,
    latency: object = None,
) -> Network:
    """Make ``n`` hosts, h1, h2 and so on, on a network of their own.

    Parameters
    ----------
    n
        Number of hosts, 1 to 100.
    rate
        Bits per second that each host can send: "100mbit". None: as fast as the machine is.
    delay
        How long every packet is on its way to another host, even an empty one: "5ms" adds 10 ms to
        a question and its answer. None: no longer than this machine needs. Needs the kernel's
        network emulator (module sch_netem).
    queue
        How long a packet may wait until its host's link is free (None: "50ms"); one that would
        wait longer is lost, and TCP sends it again. Needs a rate.
    reach
        Let this machine and the hosts reach one another too. For root only.
    latency
        What ``queue`` was called once; refused.

    Raises
    ------
    UsageError
        If a value is not allowed.
    StartError
        If no hosts can be made here; nothing is left then.

    Examples
    --------
    >>> with labkit.hosts.network(2, rate="100mbit") as (h1, h2):
    ...     print(h1.run(["getent", "hosts", "h2"]).stdout.split()[-1])
    h2
    """
    if not 1 <= n <= 100:
        raise UsageError(f"A network must have 1 to 100 hosts, got {n}.")
    if rate is not None and not re.fullmatch(r"[1-9]\d*[kmg]?bit", rate):
        raise UsageError(f'A rate must be a text such as "100mbit" or "1gbit", got {rate!r}.')
    if latency is not None:
        raise UsageError(
            "latency= is called queue= now: how long a packet may wait for its host's link. For a "
            "time that each packet takes, use delay=."
        )
    if delay is not None and not re.fullmatch(_TIME, delay):
        raise UsageError(f'A delay must be a text such as "5ms", got {delay!r}.')
    if queue is not None and (rate is None or not re.fullmatch(_TIME, queue)):
        raise UsageError(f'A queue must be a text such as "50ms" beside a rate, got {queue!r}.')
    commands.check_machine()
    slow = _DELAY.format(delay=delay) if delay is not None else ""
    if rate is not None:
        place = "parent 1:1" if delay is not None else "root"
        slow += "\n" + _RATE.format(place=place, rate=rate, queue=queue or "50ms")
    return Network(n, slow, reach)


class Network:
    """Hosts and the switch between them; made by ``network``, ended by ``with`` or ``close``.

    Examples
    --------
    >>> with labkit.hosts.network(2) as network:
    ...     [host.name for host in network]
    ['h1', 'h2']
    """

    def __init__(self, n: int, slow: str, reach: bool) -> None:
        self.closed = False
        self._hosts: list[Host] = []
        before: list[str] = []
        self._enter = [commands.find("nsenter")]
        if not rights.are_roots():
            if reach:
                raise StartError(
                    "reach=True needs root: it adds a link to this machine's own network."
                )
            rights.check_user()
            before = rights.as_own_user()
            # Root on a host is who this is here; nsenter would change to another one.
            self._enter += ["--user", "--preserve-credentials"]
        self._claim, self._third = _claim_subnet()
        self._link = f"{_LINK}{self._third}" if reach else ""
        self.here = self._address(254) if reach else None  #: this machine's address among them
        command = [*before, sys.executable, "-P", "-m", __package__]
        command += [str(os.getpid()), str(n + 1), self._link, self._address(0)]
        self._keeper = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # The subnet is taken until the keeper has cleaned up.
            pass_fds=[self._claim.fileno()],
        )
        try:
            switch, *holders = self._holders()
            for number, holder in enumerate(holders, 1):
                address = self._address(number)
                self._hosts.append(Host(f"h{number}", address, holder, self._enter))
            self._wire(switch)
            self._set_up(slow)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process on the hosts, then the hosts. A second call does nothing.

        Examples
        --------
        >>> network = labkit.hosts.network(1)
        >>> network.close()
        >>> network.closed
        True
        """
        if self.closed:
            return
        for host in self._hosts:
            host._end()
        spaces = [host._namespace for host in self._hosts]
        namespaces.clean(spaces, self._link, self._address(0))
        self._keeper.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(times.HOST_STEP)
        self._keeper.kill()
        self._keeper.wait(times.HOST_STEP)
        assert self._keeper.stdout is not None
        self._keeper.stdout.close()
        for host in self._hosts:
            host._close()
        self._claim.close()
        self.closed = True

    def _address(self, number: int) -> str:
        return f"10.77.{self._third}.{number}"

    def _holders(self) -> list[int]:
        """Return the processes that hold the namespaces, as the keeper tells."""
        assert self._keeper.stdout is not None
        answered = select.poll()
        answered.register(self._keeper.stdout, select.POLLIN)
        ready = answered.poll(1000 * times.HOST_STEP)
        answer = self._keeper.stdout.readline().strip() if ready else "no answer"
        if not re.fullmatch(r"[\d ]+", answer):
            raise commands.impossible(answer)
        return [int(pid) for pid in answer.split()]

    def _wire(self, switch: int) -> None:
        """Plug every host into the switch, and this machine if it is to reach them."""
        ends = {host.name: f"eth0 netns {host._holder}" for host in self._hosts}
        if self._link:
            ends["here"] = f"{self._link} netns {os.getpid()}"
        lines = ["link add lan type bridge", "link set lan up"]
        for end, peer in ends.items():
            lines += [f"link add {end} type veth peer {peer}", f"link set {end} master lan up"]
        ip = [commands.find("ip"), "-batch", "-"]
        commands.do([*self._enter, "--target", str(switch), "--net", *ip], "\n".join(lines))
        if self._link:
            lines = [
                f"address add {self.here}/24 dev {self._link}",
                f"link set {self._link} up",
                f"route add {namespaces.no_way_out(self._address(0))}",
            ]
            # Not after the owner's end: the keeper would have cleaned up before it.
            dies = [commands.find("setpriv"), "--pdeathsig", "KILL"]
            commands.do([*dies, *ip], "\n".join(lines))

    def _set_up(self, slow: str) -> None:
        """Give every host its name, its address, and the names of all."""
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self._hosts)]
        if self.here:
            lines.append(f"{self.here} {socket.gethostname()}")
        names = shlex.join(lines)
        for host in self._hosts:
            script = _SET_UP.format(name=host.name, address=host.address, names=names)
            commands.do(host.argv(["sh", "-eu"], cwd="/"), script)
            if slow:
                self._slow_down(host, slow)

    @staticmethod
    def _slow_down(host: Host, script: str) -> None:
        """Give a host's link its delay and its rate.

        Raises
        ------
        StartError
            If the kernel has no delay, or tc fails.
        """
        try:
            commands.do(host.argv(["sh", "-eu"], cwd="/"), script)
        except StartError as error:
            if "netem" in script and "kind is unknown" in str(error):
                raise StartError(
                    "A delay between hosts needs the kernel module sch_netem, which this machine "
                    "does not have."
                ) from error
            raise


def _claim_subnet() -> tuple[socket.socket, int]:
    """Find a free subnet 10.77.x.0/24; return x and the socket whose name says that it is taken.

    What is left of a network whose owner and keeper were killed is removed.
    """
    routes = _routes()
    for third in range(256):
        claim = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            claim.bind(f"\0labkit.hosts.{third}")
            if f"10.77.{third}." in routes:
                namespaces.unlink(f"{_LINK}{third}", f"10.77.{third}.0")
                routes = _routes()
            if f"10.77.{third}." not in routes:
                return claim, third
        claim.close()
    raise StartError("Several hosts on one machine need a free subnet in 10.77.0.0/16.")


def _routes() -> str:
    """Return this machine's routes into 10.77.0.0/16, as ip writes them."""
    return commands.do([commands.find("ip"), "-4", "route", "show", "root", "10.77.0.0/16"])
