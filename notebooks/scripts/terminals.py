"""Give notebook 19 terminals of its own: commands that run side by side, on one machine or two.

with terminals.two_nodes() as (nodes, first):
    left, right = (Terminal(f"torchrun ... --rdzv-endpoint={first}:29400", n) for n in nodes)
    for line in left: ...
"""

import os
import random
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from threading import Timer

import psutil

from labkit import hosts

#: torchrun is found, prints at once, and gives one core to each process without a warning.
VARIABLES = {
    "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
#: All processes are on this machine: they talk inside it.
INSIDE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "PET_LOCAL_ADDR": "localhost"}
if not any(name == "lo" for _, name in socket.if_nameindex()):
    INSIDE = {}


class Terminal:
    """A command that runs while the notebook goes on. A loop over it gives its lines as they come.

    Parameters
    ----------
    command
        As one types it.
    node
        Where it runs: a host of ``labkit.hosts``, or None for this machine.
    seconds
        After this time it is killed, with all that it has started.
    variables
        For its environment.
    """

    def __init__(self, command, node=None, seconds=120, **variables):
        words = shlex.split(command)
        env = {k: v for k, v in os.environ.items() if k not in INSIDE}
        self._process = subprocess.Popen(
            node.argv(words) if node else words,
            env={**env, **VARIABLES, **({} if node else INSIDE), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._alarm = Timer(seconds, self.kill)
        self._alarm.daemon = True
        self._alarm.start()

    def __iter__(self):
        try:
            yield from map(str.rstrip, self._process.stdout)
        finally:
            if self._process.stdout.closed or self._process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(30)
            self._alarm.cancel()

    @property
    def ended_well(self):
        """Whether its exit code is 0."""
        return self._process.wait(30) == 0

    def pid(self, rank):
        """Return the process id of a rank that torchrun has started in it."""
        for process in self._all():
            with suppress(psutil.Error):
                if process.environ().get("RANK") == str(rank):
                    return process.pid
        raise LookupError(f"No process of rank {rank} runs in this terminal.")

    def kill(self):
        """Kill it and all that it has started, as if its machine lost power."""
        for process in self._all():
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def _all(self):
        """List its processes, the agent before its workers."""
        with suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        return []


def free_port():
    """Return a port at which nobody listens, outside the range that the system hands out."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", port)):
                return port


@contextmanager
def two_nodes():
    """Give two hosts and the name of the first; where none can be made, this machine twice."""
    if hosts.unavailable_reason():
        yield [None, None], "localhost"
    else:
        with hosts.network(2) as network:
            yield list(network), network[0].name
