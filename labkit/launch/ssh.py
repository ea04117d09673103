"""Look at the hosts of ``engines="ssh"`` before anything is started on them.

ipyparallel's launcher starts one rank after the other, several connections each, and what is
wrong with a host shows up late and as a traceback.
"""

from __future__ import annotations

import ipaddress
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from ..base import times
from ..base.errors import StartError, UsageError

#: Runs a command without its error output: what hosts say while all is well would come to stand in
#: the notebook.
HUSH = ("sh", "-c", 'exec "$@" 2>/dev/null', "sh")
#: Where what ranks need on a host has its place, below the home there.
FOLDER = ".cache/labkit"
#: What a rank needs there; prints the address by which that host sees this machine.
_CODE = (
    "import importlib, os; importlib.import_module('labkit.launch.external_engine'); "
    "import ipyparallel; assert importlib.util.find_spec('torch'), 'there is no torch'; "
    "from labkit.base import trust; "
    f"trust.unsafe_reason({FOLDER!r}) and exit(os.getcwd() + "
    f"'/{FOLDER} is not safe from other users: ' + trust.unsafe_reason({FOLDER!r})); "
    "print('labkit', os.environ.get('SSH_CONNECTION', '').partition(' ')[0])"
)


@dataclass(frozen=True)
class Host:
    """One host, as the launcher will reach it."""

    name: str  #: as the user wrote it: ``user@host:port``
    command: Sequence[str]  #: ssh with its arguments, up to the place of the remote command
    python: str


def look(hosts: Sequence[Host], seconds: float = times.SSH_LOOK) -> list[str]:
    """Inspect all hosts at once; return the addresses by which they see this machine.

    Raises
    ------
    StartError
        If one cannot be reached or cannot run a rank: one sentence that names it.
    """
    looks = [
        subprocess.Popen(
            [*host.command, shlex.join([host.python, "-P", "-c", _CODE])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in hosts
    ]
    try:
        return [_read(host, one, seconds) for host, one in zip(hosts, looks, strict=True)]
    finally:
        for one in looks:
            one.kill()
            one.wait()
            for stream in (one.stdout, one.stderr):
                if stream is not None:
                    stream.close()


def _read(host: Host, look: subprocess.Popen[str], seconds: float) -> str:
    try:
        out, err = look.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise StartError(f"Host {host.name!r} did not answer within {seconds:.0f} s.") from None
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    reason = lines[-1].rstrip(".") if lines else f"exit code {look.returncode}"
    if look.returncode == 255:  # ssh's own
        raise StartError(f"Host {host.name!r} cannot be reached by ssh: {reason}.")
    if look.returncode in (126, 127):
        raise StartError(
            f"Host {host.name!r} has no Python at {host.python!r}; name its own in config: "
            '{"SSHLauncher": {"remote_python": …}}.'
        )
    if look.returncode:
        raise StartError(f"Host {host.name!r} cannot run a rank with {host.python!r}: {reason}.")
    answer = [line for line in out.splitlines() if line.startswith("labkit ")]
    return answer[-1].removeprefix("labkit ").strip() if answer else ""


def refusal(error: Exception) -> str:
    """Put a connection that broke while ranks were started into a sentence, "" if it is none."""
    if not isinstance(error, subprocess.CalledProcessError) or not isinstance(error.cmd, list):
        return ""
    if tuple(error.cmd[: len(HUSH)]) != HUSH:
        return ""
    command = shlex.join(error.cmd[len(HUSH) :])
    return f"A rank could not be started: exit code {error.returncode} from {command}."


def choose_address(seen: Sequence[str]) -> tuple[str, str]:
    """Choose where the controller listens, from the addresses by which hosts see this machine.

    Returns
    -------
    tuple
        The address to listen on, "*" if one is not enough, and the one to tell the hosts.
    """
    local = {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    outside = list(dict.fromkeys(a for a in seen if not _is_loopback(a)))
    # A host that sees this machine on loopback is this machine: it reaches the other one too.
    wanted = outside or list(dict.fromkeys(seen))
    if len(wanted) == 1 and wanted[0] in local and ":" not in wanted[0]:
        return wanted[0], wanted[0]
    return "*", next((a for a in wanted if a), "")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def count(engines: Mapping[str, object]) -> int:
    """Count the ranks that ``SSHEngineSetLauncher.engines`` has room for."""
    return sum(_own(value)[0] for value in engines.values())


def _own(value: object) -> tuple[int, Mapping[str, object]]:
    """Split the value of one host into its number of ranks and its own settings."""
    if isinstance(value, Mapping):
        own = dict(value)
        value = own.pop("n", 1)
    else:
        own = {}
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"The number of ranks of a host is a whole number, not {value!r}.")
    return value, own


def list_hosts(
    engines: Mapping[str, object], n: int, ssh: Sequence[str], arguments: Sequence[str], python: str
) -> list[Host]:
    """List the hosts that get a rank when ``n`` are started."""
    hosts, left = [], n
    for name, value in engines.items():
        size, own = _own(value)
        if size > 0 and left > 0:
            place, _, port = name.partition(":")
            command = [
                *_words(own.get("ssh_cmd"), ssh),
                *_words(own.get("ssh_args"), arguments),
                *(["-p", port] if port else []),
                place,
            ]
            hosts.append(Host(name, command, str(own.get("remote_python", python))))
        left -= size
    return hosts


def _words(own: object, default: Sequence[str]) -> list[str]:
    return [str(word) for word in own] if isinstance(own, list | tuple) else list(default)
