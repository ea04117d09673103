"""Configure ipyparallel's own launchers: "mpi", "slurm", "ssh" and the others that it has.

Each needs something that its defaults do not give; what it is stands at its function. What the
user sets comes last and wins.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traitlets.config import Config

from ..base import trust
from ..base.errors import StartError, UsageError
from ..wire.protocol import (
    LAB_FOLDER,
    LAST_COMMAND,
    OWNER_PID,
    REMOTE_FOLDER,
    SHARED_WORK,
    WORK_FOLDER,
)
from . import slurm, ssh

#: Launchers whose ranks all run on this machine: their controller listens on loopback only.
LOCAL = ("local", "mpi")
LOOPBACK = "127.0.0.1"

#: What Open MPI and its successor must be told: to start as many ranks as the notebook asks for,
#: and to leave each all cores, which labkit shares out itself.
_OPEN_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
#: It refuses root, to protect people from their own mistakes. Where this notebook's kernel runs
#: as root (in a container, as a rule) every cell has that power already.
_OPEN_MPI_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

_SSH_HOSTS = (
    'engines="ssh" needs to know the hosts and how many ranks each gets: '
    'config={"SSHEngineSetLauncher": {"engines": {"host1": 2, "host2": 2}}}.'
)


def check(n: int | None, engines: str, own: Mapping[str, Mapping[str, Any]]) -> int | None:
    """Return the number of ranks, if the launcher has a say in it.

    Raises
    ------
    LabError
        If the launcher cannot work: it is not installed, or nobody named the hosts.
    """
    made = _merge(Config(), own)
    if engines == "mpi":
        command = _value(made, "mpi_cmd", ["mpiexec"], "MPIEngineSetLauncher", "MPILauncher")
        if shutil.which(command[0]) is None:
            raise StartError(
                f'engines="mpi" needs the command {command[0]} of Open MPI or MPICH, which is '
                "not there."
            )
    if engines == "slurm" and shutil.which("sbatch") is None:
        raise StartError('engines="slurm" needs the command sbatch of Slurm, which is not there.')
    if engines == "ssh":
        hosts = _hosts(made)
        most = ssh.count(hosts)
        if not most:
            raise UsageError(_SSH_HOSTS)
        if shutil.which(_ssh_value(made, "ssh_cmd", ["ssh"])[0]) is None:
            raise StartError('engines="ssh" needs the command ssh, which is not there.')
        if n is not None and n > most:
            raise UsageError(
                f"{n} ranks are more than the hosts were given: {most} in all "
                f"({', '.join(f'{name}: {value}' for name, value in hosts.items())})."
            )
        return n or most
    return n


def config(
    engines: str, own: Mapping[str, Mapping[str, Any]], size: int, folder: Path | str
) -> Config:
    """Return the configuration of controller and engines, ``own`` settings of the user over ours.

    ``own`` has the form of a traitlets ``Config``: class, trait, value; ``folder`` is the lab's.

    Raises
    ------
    LabError
        If a host cannot be reached or cannot run a rank.
    """
    made = Config()
    _ranks(made, sys.executable)
    addresses = ("", "")
    if engines == "mpi":
        _mpi(made, own)
    elif engines == "ssh":
        addresses = _ssh(made, own, size)
    elif engines == "slurm":
        addresses = _slurm_addresses(own)
    _controller(made, folder, *(addresses if engines not in LOCAL else (LOOPBACK, "")))
    if engines == "slurm":
        _slurm(made, own, folder)
    made.LocalEngineSetLauncher.delay = 0.0
    _merge(made, own)
    if engines == "ssh":
        _hush_ssh(made)
    return made


def _merge(made: Config, own: Mapping[str, Mapping[str, Any]]) -> Config:
    for settings, values in own.items():
        ours = made[settings].get("environment", {})
        made[settings].update(values)
        if ours and "environment" in values:  # one variable of theirs shall not cost all of ours
            made[settings].environment = {**ours, **values["environment"]}
    return made


def _value(made: Config, trait: str, default: Any, *classes: str) -> Any:
    """Return a setting, of the first of the classes that has one."""
    return next((made[name][trait] for name in classes if trait in made[name]), default)


def _controller(made: Config, folder: Path | str, ip: str = "", location: str = "") -> None:
    """Few processes, quick to connect, ends with this process, and on loopback unless the ranks
    are on other hosts.

    Its channels are TCP, which every user of a host can connect to. Encrypted by ZeroMQ (CURVE),
    they say nothing to those who do not have the key; signed messages alone can be read by all.
    """
    import zmq

    python = [sys.executable, "-P", "-m", "labkit.launch.controller"]
    made.LocalControllerLauncher.controller_cmd = python
    made.LocalControllerLauncher.environment = {
        OWNER_PID: str(os.getpid()),
        LAB_FOLDER: str(folder),
    }
    made.LocalControllerLauncher.controller_args = [
        f"--ip={ip or '*'}",
        *([f"--location={location}"] if location else []),
        *(["--IPController.enable_curve=True"] if zmq.has("curve") else []),
        "--log-level=30",
    ]


def _ranks(made: Config, python: str) -> None:
    """Ranks that end with the controller, and say how they ended."""
    made.EngineLauncher.engine_cmd = [python, "-P", "-m", "labkit.launch.external_engine"]


def _work_folder() -> dict[str, str]:
    """Return the variables that say where the notebook is, and whether others can write there."""
    here = os.getcwd()
    return {WORK_FOLDER: here, **({SHARED_WORK: "1"} if trust.unsafe_reason(here) else {})}


def _mpi(made: Config, own: Mapping[str, Mapping[str, Any]]) -> None:
    """As many ranks as asked for on the cores that there are, for root too.

    By environment variables, which MPICH does not mind; those that are set already stay.
    """
    wanted = {**_OPEN_MPI, **(_OPEN_MPI_ROOT if os.geteuid() == 0 else {})}
    made.MPIEngineSetLauncher.environment = {
        **_work_folder(),
        **{name: value for name, value in wanted.items() if name not in os.environ},
        **_value(_merge(Config(), own), "environment", {}, "MPILauncher"),
    }


# -- slurm --------------------------------------------------------------------------------------


def _slurm(made: Config, own: Mapping[str, Mapping[str, Any]], folder: Path | str) -> None:
    """A job with what the user asked for, which leaves no file behind and is cancelled when this
    process ends, also while it waits in the queue."""
    name = f"labkit-{secrets.token_hex(4)}"  # everybody sees it in the queue
    given = _merge(Config(), own)
    chosen = {**given["SlurmLauncher"], **given["SlurmEngineSetLauncher"]}
    made.SlurmEngineSetLauncher.update(slurm.settings(folder, name, chosen))
    made.SlurmEngineSetLauncher.environment = _work_folder()
    made.LocalControllerLauncher.environment[LAST_COMMAND] = json.dumps(slurm.cancel_command(name))


def _slurm_addresses(own: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Return where the controller listens and what the ranks are told, if the user says so."""
    given = _merge(Config(), own)
    return (_value(given, "ip", "", "IPController"), _value(given, "location", "", "IPController"))


# -- ssh ----------------------------------------------------------------------------------------


def _ssh(made: Config, own: Mapping[str, Mapping[str, Any]], size: int) -> tuple[str, str]:
    """This Python on every host, no questions asked by ssh, and no files sent.

    The connection is described in an environment variable; a file would be one more place for
    its key. Returns where the controller listens and what the hosts are told.
    """
    given = _merge(Config(), own)
    base = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR"]
    arguments = _ssh_value(given, "ssh_args", base)
    python = _ssh_value(given, "remote_python", sys.executable)
    _ranks(made, python)
    # Below the home of each host, from where ssh begins: everybody on the host sees its name.
    folder = f"{ssh.FOLDER}/{secrets.token_hex(8)}"
    made.SSHLauncher.ssh_args = base
    made.SSHLauncher.scp_args = base
    made.SSHLauncher.remote_python = sys.executable
    made.SSHLauncher.remote_profile_dir = folder
    made.SSHEngineLauncher.to_send = []
    made.SSHEngineSetLauncher.environment = {
        REMOTE_FOLDER: folder,
        **_work_folder(),
        **_value(given, "environment", {}, "SSHLauncher"),
    }
    command = _ssh_value(given, "ssh_cmd", ["ssh"])
    hosts = ssh.list_hosts(_hosts(given), size, command, arguments, python)
    return ssh.choose_address(ssh.look(hosts))


def _hush_ssh(made: Config) -> None:
    """Keep what the hosts' commands say while all is well out of the notebook."""
    command = _ssh_value(made, "ssh_cmd", ["ssh"])
    made.SSHEngineSetLauncher.ssh_cmd = [*ssh.HUSH, *command]


def _ssh_value(made: Config, trait: str, default: Any) -> Any:
    return _value(made, trait, default, "SSHEngineLauncher", "SSHEngineSetLauncher", "SSHLauncher")


def _hosts(made: Config) -> Mapping[str, Any]:
    """Return what the user wrote as ``SSHEngineSetLauncher.engines``."""
    hosts = _value(made, "engines", {}, "SSHEngineSetLauncher")
    if not isinstance(hosts, Mapping):
        raise UsageError(_SSH_HOSTS)
    return hosts
