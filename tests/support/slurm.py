"""Start a real Slurm for a test: two nodes, h1 and h2, which are hosts on this machine.

The daemons run as root on those hosts (``labkit.hosts``), so that the system ends every one of
them, and every job, with the process that started them, however it ends. Nothing outside this
machine reaches them. Their key, socket, configuration and spool are in one temporary folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit import hosts
from tests.support.system import SERVER_FOLDERS

#: Seconds for the daemons to come up, and for one of Slurm's commands.
READY_SECONDS, COMMAND_SECONDS = 120, 120

# Debian's plug-ins for process tracking and accounting need control groups of systemd's making.
# A node claims to have CPUs that the machine does not: jobs are small here. A job that was put back
# into the queue begins again when its credential has expired and the scheduler looks: soon.
CONFIGURATION = """\
ClusterName=labkit
SlurmctldHost=h1({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
KillWait=3
SlurmdTimeout=30
SchedulerParameters=sched_interval=2,bf_interval=2
PartitionName=course Nodes=ALL Default=YES State=UP
"""
NODE = "NodeName={name} NodeAddr={address} CPUs=8 State=UNKNOWN\n"

MUNGED = (
    "munged --force --foreground --key-file={0}/munge.key --socket={0}/munge.socket "
    "--pid-file={0}/munged.pid --log-file={0}/munged.log --seed-file={0}/munged.seed"
)


@dataclass
class Slurm:
    """A running Slurm."""

    folder: Path
    network: hosts.Network

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need to find it, on this machine as on its nodes."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands; return what it printed."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def jobs(self) -> list[str]:
        """List the jobs that have not ended for good, each as "id state"."""
        return self.run("squeue", "--noheader", "--format=%i %T").splitlines()

    def logs(self) -> str:
        """Return the ends of the daemons' logs, for the message of a test that fails."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')[-1500:]}" for p in logs)


@contextlib.contextmanager
def slurm() -> Iterator[Slurm]:
    """Start a Slurm; end it and its jobs afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        with hosts.network(2, reach=True) as network:
            made = Slurm(folder, network)
            _write_files(made)
            _start(made)
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_files(made: Slurm) -> None:
    folder, network = made.folder, made.network
    text = CONFIGURATION.format(folder=folder, address=network[0].address)
    text += "".join(NODE.format(name=host.name, address=host.address) for host in network)
    (folder / "slurm.conf").write_text(text)
    for name in ("state", *(f"spool-{host.name}" for host in network)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(128))


def _start(made: Slurm) -> None:
    first, second = made.network
    daemons = [_daemon(made, first, MUNGED.format(made.folder))]
    _wait_for(made, daemons, (made.folder / "munge.socket").exists)
    daemons.append(_daemon(made, first, "slurmctld -D"))
    daemons += [_daemon(made, host, f"slurmd -D -N {host.name}") for host in (first, second)]
    _wait_for(made, daemons, lambda: _states(made) == ["idle", "idle"])


def _daemon(made: Slurm, host: hosts.Host, command: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SERVER_FOLDERS])
    with open(made.folder / "daemons.log", "ab") as log:
        return host.popen(
            shlex.split(command),
            env={**os.environ, **made.environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _states(made: Slurm) -> list[str]:
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        return made.run("sinfo", "--noheader", "--Node", "--format=%T").split()
    return []


def _wait_for(
    made: Slurm, daemons: list[subprocess.Popen[bytes]], condition: Callable[[], object]
) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        hope = time.monotonic() < deadline and all(daemon.poll() is None for daemon in daemons)
        assert hope, f"Slurm did not start:\n{made.logs()}"
        time.sleep(0.05)
