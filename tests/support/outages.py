"""Let a link between two hosts be down now and then: nothing passes, and nobody is told.

By turns only the hosts do not reach one another, and one of them reaches nobody, so that the lab
does not know either what its ranks do.

It runs in a process of its own: a thread of the notebook that labkit does not know is a reason not
to prove anything (``labkit.runtime.watchdog``). ``python -m tests.support.outages PID`` pulls the
cables of the switch that the process PID holds, until its input ends, and prints how often.
"""

from __future__ import annotations

import random
import select
import subprocess
import sys

import psutil

from labkit import hosts
from labkit.hosts import commands

from .conda_versions import ROOT

#: Seconds for which the link is down, and between two such times.
DOWN, UP = 2.0, (3.0, 6.0)


class Outages:
    """The outages of a network's link, from entering to leaving."""

    def __init__(self, network: hosts.Network) -> None:
        keeper = psutil.Process(network._keeper.pid)
        # The first process that it started holds the switch.
        self._switch = min(keeper.children(), key=lambda process: process.create_time()).pid
        self.count = 0  #: outages that there were, once it is over

    def __enter__(self) -> Outages:
        command = [sys.executable, "-m", __name__, str(self._switch)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        return self

    def __exit__(self, *exception: object) -> None:
        printed, _ = self._process.communicate()
        self.count = int(printed)


def run(switch: int) -> int:
    """Make outages until the input ends; return their number."""
    chance = random.Random(0)
    count = 0
    while not _ends_within(chance.uniform(*UP)):
        if count % 2:
            down, up = ["link set h2 down"], ["link set h2 up"]
        else:
            ports = [f"link set {port} type bridge_slave isolated" for port in ("h1", "h2")]
            down, up = [f"{port} on" for port in ports], [f"{port} off" for port in ports]
        _ip(switch, down)
        _ends_within(DOWN)
        _ip(switch, up)
        count += 1
    return count


def _ends_within(seconds: float) -> bool:
    """Wait until the input has ended, or the time is over; return whether it has ended."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def _ip(switch: int, lines: list[str]) -> None:
    enter = [commands.find("nsenter"), "--target", str(switch), "--net"]
    commands.do([*enter, commands.find("ip"), "-batch", "-"], "\n".join(lines))


if __name__ == "__main__":
    print(run(int(sys.argv[1])))
