"""Keep the namespaces of a network alive while its owner lives, then clean up.

A process of its own, so that ``kill -9`` of the owner leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

from ..base import times
from . import commands, namespaces

# Says that its namespaces are there, then waits to be killed; dies with the keeper.
_HOLDER = [
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--uts", "--mount", "--propagation", "slave"),
    *("sh", "-c", "echo ready; exec sleep infinity"),
]


def keep(owner: int, count: int, link: str, subnet: str) -> None:
    """Make ``count`` sets of namespaces; write who holds them; clean up after the owner."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the owner has cleaned up itself
    try:
        alive = os.pidfd_open(owner)
    except ProcessLookupError:
        return
    if os.getppid() != owner:  # it has ended already, and its number is another's
        return
    holders = [_hold() for _ in range(count)]
    try:
        for holder in holders:
            assert holder.stdout is not None
            if (line := holder.stdout.readline()) != "ready\n":
                print(line, flush=True)
                return
        spaces = [namespaces.hold_open(holder.pid) for holder in holders]
        with contextlib.suppress(BrokenPipeError):  # an owner that has ended does not read
            os.write(sys.stdout.fileno(), f"{' '.join(str(h.pid) for h in holders)}\n".encode())
        select.select([alive], [], [])
        namespaces.clean(spaces, link, subnet)
    finally:
        for holder in holders:
            holder.kill()
            holder.wait(times.HOST_STEP)


def _hold() -> subprocess.Popen[str]:
    return subprocess.Popen(
        _HOLDER,
        env={**os.environ, "PATH": commands.PATH, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


if __name__ == "__main__":
    keep(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
