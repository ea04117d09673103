"""Several hosts on one machine: what they are, and that nothing is left of them.

As root and as any other user, who cannot let this machine reach its hosts: run by
``test_hosts_of_user`` once more, as such a user.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from labkit import LabError, hosts
from labkit.base import times
from labkit.hosts import commands, namespaces, rights
from tests.support.events import HANG_SECONDS
from tests.support.system import needs_hosts

pytestmark = needs_hosts()
#: Where this user may let this machine reach its hosts, that is done and undone too.
REACH = rights.are_roots()
Eventually = Callable[[Callable[[], object], float], None]

#: Listens on port 5000, says so, and counts the bytes that come.
SERVER = """
import socket
server = socket.create_server(("", 5000))
print("ready", flush=True)
connection, _ = server.accept()
count = 0
while data := connection.recv(1 << 16):
    count += len(data)
connection.sendall(str(count).encode())
"""
#: Sends so many bytes to a host; prints the seconds until they had arrived, and their number.
CLIENT = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 5000), timeout=30) as link:
    began = time.perf_counter()
    link.sendall(bytes(int(sys.argv[2])))
    link.shutdown(socket.SHUT_WR)
    count = link.recv(100).decode()
    print(time.perf_counter() - began, count)
"""
#: Makes a network, with a way to this machine if possible, and something running on it; then waits.
OWNER = f"""
import json, sys, time
from labkit import hosts
net = hosts.network(2, reach={REACH})
net[0].run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
net[1].popen(["sleep", "1000"])
print(json.dumps({{"here": net.here, "first": net[0].address}}), flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[hosts.Network]:
    with hosts.network(2) as net:
        yield net


@pytest.fixture(autouse=True)
def _nothing_left(eventually: Eventually) -> Iterator[None]:
    """Fail a test that leaves a link or a route of a network that is no more."""
    before = unclaimed()
    yield
    eventually(lambda: unclaimed() <= before, instead=lambda: unclaimed() - before)


def unclaimed() -> set[str]:
    """Find links and routes of subnets that no network has (those in use have a socket)."""
    routes = commands.do([commands.find("ip"), "route"])
    found = {*psutil.net_if_addrs(), *re.findall(r"unreachable 10\.77\.\d+", routes)}
    used = re.findall(r"@labkit\.hosts\.(\d+)", Path("/proc/net/unix").read_text())
    return {
        name
        for name in found
        if (match := re.fullmatch(r"(?:labkit|unreachable 10\.77\.)(\d+)", name))
        and match[1] not in used
    }


def marked(mark: str) -> list[psutil.Process]:
    """List the processes that have inherited an environment with the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("LABKIT_TEST") == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def own(code: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """Start a process that owns a network; return it and the mark of all it starts."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LABKIT_TEST": mark, **environment},
    )
    return process, mark


# -- what a host is -----------------------------------------------------------------------------


def test_they_can_be_made_here() -> None:
    assert hosts.unavailable_reason() == ""


def test_each_has_its_own_name_and_knows_the_others(pair: hosts.Network) -> None:
    for host in pair:
        assert host.run(["hostname"]).stdout == f"{host.name}\n"
        for other in pair:
            found = host.run(["getent", "hosts", other.name]).stdout.split()
            assert found == [other.address, other.name]
        assert host.run(["getent", "hosts", "localhost"]).stdout.split()[0] == "127.0.0.1"
    assert [host.name for host in pair] == ["h1", "h2"]
    assert (len(pair), pair[1].name, pair.here) == (2, "h2", None)
    assert socket.gethostname() not in ("h1", "h2")


def test_python_finds_itself_by_its_own_name(pair: hosts.Network) -> None:
    code = "import socket; print(socket.getfqdn(), socket.gethostbyname(socket.gethostname()))"
    assert pair[0].run([sys.executable, "-c", code]).stdout.split() == ["h1", pair[0].address]


def test_they_reach_one_another_but_nothing_else(pair: hosts.Network) -> None:
    assert transfer(pair, 1000)[1] == 1000
    outside = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    assert "Network is unreachable" in pair[0].run([sys.executable, "-c", outside]).stderr


def test_a_command_runs_where_this_process_is(
    pair: hosts.Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pair[0].run(["pwd"], cwd=tmp_path).stdout == f"{tmp_path}\n"
    monkeypatch.chdir(tmp_path)
    assert pair[0].run(["pwd"]).stdout == f"{tmp_path}\n"
    done = subprocess.run(pair[1].argv(["pwd"]), capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}\n"
    path = {"PATH": os.environ["PATH"]}
    assert pair[0].run(["sh", "-c", "echo $ONE"], env={**path, "ONE": "1"}).stdout == "1\n"


def test_a_command_that_fails(pair: hosts.Network) -> None:
    done = pair[0].run(["sh", "-c", "echo one; echo two >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "one\n", "two\n")
    assert pair[0].run(["no-such-command"]).returncode == 127


def test_a_signal_reaches_the_command_itself(pair: hosts.Network) -> None:
    script = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    with pair[0].popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert os.getsid(process.pid) == process.pid
        process.terminate()
        assert (process.stdout.read(), process.wait(HANG_SECONDS)) == ("caught\n", 7)


def transfer(net: hosts.Network, size: int) -> tuple[float, int]:
    """Send ``size`` bytes from the first host to the second; return seconds and bytes."""
    command = [sys.executable, "-c", SERVER]
    with net[1].popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        done = net[0].run([sys.executable, "-c", CLIENT, net[1].name, str(size)])
        assert done.returncode == 0, done.stderr
        server.wait(HANG_SECONDS)
    seconds, count = done.stdout.split()
    return float(seconds), int(count)


def test_a_slow_link_is_slow(pair: hosts.Network) -> None:
    size = 1_000_000
    with hosts.network(2, rate="20mbit", queue="100ms") as slow:
        seconds, count = transfer(slow, size)
    assert count == size
    # The first 64 kB pass at once.
    assert seconds > 0.9 * (size - 65536) * 8 / 20e6
    assert min(transfer(pair, size)[0] for _ in range(3)) < seconds / 3


def test_a_delay_is_what_each_packet_takes(
    stand_in: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Measured where the kernel has the network emulator; else it is said that it has not."""
    with_rate = {"delay": "40ms", "rate": "100mbit"}
    if why := hosts.unavailable_reason(delay="40ms"):
        assert why == (
            "A delay between hosts needs the kernel module sch_netem, which this machine does not "
            "have."
        )
        assert hosts.unavailable_reason(**with_rate) == why
        # What the kernel would be asked for.
        stand_in("tc", f'echo "$*" >> {tmp_path}/asked')
        hosts.network(1, delay="40ms").close()
        hosts.network(1, **with_rate).close()
        assert (tmp_path / "asked").read_text().splitlines() == [
            "qdisc add dev eth0 root handle 1: netem delay 40ms limit 1000000",
            "qdisc add dev eth0 root handle 1: netem delay 40ms limit 1000000",
            "qdisc add dev eth0 parent 1:1 tbf rate 100mbit burst 64kb latency 50ms",
        ]
        return
    for settings in ({"delay": "40ms"}, with_rate):
        with hosts.network(2, **settings) as net:
            # Three ways: the connection takes two, the answer one after the last byte.
            assert transfer(net, 1)[0] >= 0.08


@pytest.mark.skipif(not REACH, reason="a link to this machine needs root")
def test_this_machine_reaches_them_if_asked_to() -> None:
    with hosts.network(1, reach=True) as net:
        (host,) = net
        with host.popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as it:
            assert it.stdout is not None
            assert it.stdout.readline() == "ready\n"
            with socket.create_connection((host.address, 5000), timeout=HANG_SECONDS) as link:
                assert link.getsockname()[0] == net.here
                link.shutdown(socket.SHUT_WR)
                assert link.recv(10) == b"0"
        name = socket.gethostname()
        assert host.run(["getent", "hosts", name]).stdout.split() == [net.here, name]
        # A host that is not there: told at once, not sent elsewhere.
        link_name = f"labkit{host.address.split('.')[2]}"
        commands.do([commands.find("ip"), "link", "set", link_name, "down"])
        with pytest.raises(OSError, match="No route to host"):  # and not that it timed out
            socket.create_connection((host.address, 5000), timeout=HANG_SECONDS)


# -- ends ---------------------------------------------------------------------------------------


def test_a_command_that_hangs_is_killed_with_all_it_started(pair: hosts.Network) -> None:
    with pair[0].popen(["sleep", "1000"]) as other:
        script = "echo begun; setsid sleep 2000 & sleep 3000"
        with pytest.raises(LabError) as caught:
            pair[0].run(["sh", "-c", script], timeout=2)
        assert str(caught.value) == (
            f"On h1, sh -c '{script}' did not end within 2 s and was killed; its last line was: "
            "begun"
        )
        assert [p.pid for p in pair[0].processes()] == [other.pid]
        other.kill()


def test_one_host_loses_its_power(pair: hosts.Network) -> None:
    started = [host.popen(["sh", "-c", "setsid sleep 100 & sleep 100"]) for host in pair]
    pair[1].kill()
    assert started[1].wait(HANG_SECONDS) == -signal.SIGKILL
    assert pair[1].processes() == []
    assert started[0].poll() is None
    assert pair[1].run(["echo", "up again"]).stdout == "up again\n"
    pair[0].kill()


def test_everything_ends_with_the_network() -> None:
    with hosts.network(1, reach=REACH) as net:
        (host,) = net
        daemon = host.popen(["sh", "-c", "trap '' TERM HUP INT; setsid sleep 100 & sleep 100"])
        space = namespaces.hold_open(host._holder)
        link = f"labkit{host.address.split('.')[2]}"
        assert (link in psutil.net_if_addrs()) == REACH
    assert namespaces.processes([space]) == []
    os.close(space)
    assert daemon.returncode == -signal.SIGKILL
    assert link not in psutil.net_if_addrs()
    assert not psutil.pid_exists(net._keeper.pid)
    net.close()
    for call in (host.argv, host.popen, host.run):
        with pytest.raises(LabError, match=r"The network of h1 was closed\."):
            call(["true"])


def test_what_is_still_on_its_way_to_a_host_ends_with_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hosts.network(1) as (h1,):
        slow = ["sh", "-c", "sleep 2; exit 3"]  # stands for an nsenter on a busy machine
        monkeypatch.setattr(h1, "argv", lambda command, cwd="": slow)
        process = h1.popen(["sleep", "60"])
    assert process.returncode == -signal.SIGKILL


def test_everything_ends_with_an_owner_that_is_killed(eventually: Eventually) -> None:
    owner, mark = own(OWNER)
    with owner:
        assert owner.stdout is not None
        facts = json.loads(owner.stdout.readline())
        # The owner, its keeper, three holders, two commands.
        eventually(lambda: len(marked(mark)) == 7)  # one may not have begun yet
        owner.kill()
    eventually(lambda: not marked(mark))
    addresses = [a.address for link in psutil.net_if_addrs().values() for a in link]
    assert facts["here"] not in addresses


@pytest.mark.slow
def test_an_owner_is_killed_while_it_makes_the_network(eventually: Eventually) -> None:
    chance = random.Random(0)
    for _ in range(10):
        owner, mark = own(OWNER)
        with owner:
            time.sleep(chance.uniform(0.05, 0.6))
            owner.kill()
        eventually(lambda mark=mark: not marked(mark))


@pytest.mark.skipif(not REACH, reason="a link to this machine needs root")
def test_an_owner_is_killed_while_it_sets_up_its_link(
    tmp_path: Path, eventually: Eventually
) -> None:
    """What is on its way then would come after the keeper's cleaning."""
    ip, begun = tmp_path / "ip", tmp_path / "begun"
    real = commands.find("ip")
    # The owner's own call, when its link is there: all but the last line, and that much later.
    ip.write_text(
        f"#!/bin/sh\n"
        f"[ $1$PPID = -batch$OWNER ] && {real} -o link | grep -q ' labkit[0-9]*@' || "
        f'exec {real} "$@"\n'
        f"lines=$(cat)\necho \"$lines\" | sed '$d' | {real} -batch -\ntouch {begun}\nsleep 2\n"
        f'echo "$lines" | tail -n 1 | {real} -batch -\n'
    )
    ip.chmod(0o755)
    code = f"import os; os.environ['OWNER'] = str(os.getpid())\n{OWNER}"
    owner, mark = own(code, PATH=f"{tmp_path}:{os.environ['PATH']}")
    with owner:
        eventually(begun.exists)
        owner.kill()
    eventually(lambda: not marked(mark))


#: In a network of its own: a route of somebody else, and what a killed network has left.
LEFT_OVER = f"""
import subprocess
from labkit import hosts
def ip(line):
    command = [{commands.find("ip")!r}, *line.split()]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
ip("link add other type bridge")
ip("link set other up")
ip("route add 10.77.0.0/24 dev other")
ip("link add labkit1 type bridge")
ip("route add unreachable 10.77.1.0/24 metric 9999")
with hosts.network(1, reach=True) as net:
    print(net.here)
print("".join(ip("route")), end="")
"""


@pytest.mark.skipif(not REACH, reason="a link to this machine needs root")
def test_the_next_network_removes_what_a_killed_one_has_left() -> None:
    command = [commands.find("unshare"), "--net", sys.executable, "-c", LEFT_OVER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.split("\n") == ["10.77.1.254", "10.77.0.0/24 dev other scope link ", ""]


def test_nothing_is_left_if_the_keeper_is_killed() -> None:
    with hosts.network(2, reach=REACH) as net:
        net[1].popen(["sleep", "100"])
        spaces = [namespaces.hold_open(host._holder) for host in net]
        net._keeper.kill()
        net._keeper.wait(HANG_SECONDS)
    assert namespaces.processes(spaces) == []
    for space in spaces:
        os.close(space)


def test_two_owners_at_once(eventually: Eventually) -> None:
    owners = [own(OWNER) for _ in range(2)]
    with owners[0][0] as one, owners[1][0] as two, hosts.network(1, reach=REACH) as net:
        assert one.stdout is not None
        assert two.stdout is not None
        facts = [json.loads(owner.stdout.readline()) for owner in (one, two)]
        first = [net[0].address, facts[0]["first"], facts[1]["first"]]
        assert len(set(first)) == 3
        one.kill()
        eventually(lambda: not marked(owners[0][1]))
        # Nothing of the others went with it.
        assert len(marked(owners[1][1])) == 7
        assert net[0].run(["hostname"]).stdout == "h1\n"
        two.kill()
    eventually(lambda: not marked(owners[1][1]))


# -- where it cannot be done --------------------------------------------------------------------


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        assert "need Linux" in hosts.unavailable_reason()
    with monkeypatch.context() as patch:
        patch.setattr(rights, "are_roots", lambda: False)
        assert hosts.unavailable_reason(reach=True) == (
            "reach=True needs root: it adds a link to this machine's own network."
        )
    monkeypatch.setattr(commands, "PATH", str(tmp_path))
    assert hosts.unavailable_reason() == "Several hosts on one machine need ip (package iproute2)."


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a script in front of one of the commands, for this process and its keeper."""

    def place(name: str, script: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setattr(commands, "PATH", f"{tmp_path}:{commands.PATH}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return place


@pytest.mark.parametrize("tool", ["unshare", "ip", "tc", "mount"])
def test_a_command_that_fails_half_way(
    tool: str,
    stand_in: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    # ip fails only once the link to this machine is there.
    works = "*batch*|*show*|*delete*" if REACH else "*show*|*delete*"
    fails = f'case "$*" in {works}) exec {commands.find(tool)} "$@";; esac; '
    refuse = f"echo {tool}: Operation not permitted >&2; echo more >&2; exit 1"
    stand_in(tool, (fails if tool == "ip" else "") + refuse)
    mark = uuid.uuid4().hex
    monkeypatch.setenv("LABKIT_TEST", mark)
    with pytest.raises(LabError) as caught:
        hosts.network(2, rate="100mbit", reach=REACH)
    sentence = f"Several hosts cannot be made on this machine: {tool}: Operation not permitted."
    if tool == "unshare" and not REACH:
        sentence = (
            "Several hosts on one machine need root here: this system lets no other user make "
            "namespaces (unshare: Operation not permitted)."
        )
    assert str(caught.value) == sentence
    eventually(lambda: not marked(mark))


@pytest.mark.parametrize("tool", ["unshare", "ip", "tc"])
def test_a_command_that_hangs_while_making(
    tool: str,
    stand_in: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    stand_in(tool, "exec sleep 1000")
    monkeypatch.setattr(times, "HOST_STEP", 1.0)
    mark = uuid.uuid4().hex
    monkeypatch.setenv("LABKIT_TEST", mark)
    refused = r"(cannot be made on this machine: |make namespaces \()[^.]*answer"
    with pytest.raises(LabError, match=refused):
        hosts.network(2, rate="100mbit")
    eventually(lambda: not marked(mark))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0}, "A network must have 1 to 100 hosts, got 0."),
        (
            {"n": 1, "rate": "fast"},
            'A rate must be a text such as "100mbit" or "1gbit", got \'fast\'.',
        ),
        (
            {"n": 1, "rate": "5mbps"},
            'A rate must be a text such as "100mbit" or "1gbit", got \'5mbps\'.',
        ),
        (
            {"n": 1, "queue": "5ms"},
            "A queue must be a text such as \"50ms\" beside a rate, got '5ms'.",
        ),
        (
            {"n": 1, "rate": "1gbit", "queue": "5"},
            "A queue must be a text such as \"50ms\" beside a rate, got '5'.",
        ),
        ({"n": 1, "delay": "fast"}, "A delay must be a text such as \"5ms\", got 'fast'."),
        (
            {"n": 1, "rate": "1gbit", "latency": "5ms"},
            "latency= is called queue= now: how long a packet may wait for its host's link. For a "
            "time that each packet takes, use delay=.",
        ),
    ],
)
def test_what_is_not_allowed(arguments: dict, sentence: str) -> None:
    with pytest.raises(LabError) as caught:
        hosts.network(**arguments)
    assert str(caught.value) == sentence
