"""Run SSH servers for a test, with keys, configuration and port of their own.

They listen on loopback, or in hosts made by ``labkit.hosts``, let nobody in but the key that was
made for the test, and end with it, however it ends.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.wire.processes import free_port
from tests.support import system

#: sshd wants it to be there, also for each new connection; where the system has never started one,
#: it is not. Made here it stays until the next boot: another test's sshd may need it by now.
EMPTY = Path("/run/sshd")
READY_SECONDS = 120.0

SERVER = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
PidFile none
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowUsers {user}
MaxStartups 100
MaxSessions 100
LogLevel ERROR
Subsystem sftp internal-sftp
"""

CLIENT = """\
Host {name}
  HostName {address}
  Port {port}
  User {user}
  HostKeyAlias labkit-test
  UserKnownHostsFile {folder}/known
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  IdentityFile {folder}/user
  IdentitiesOnly yes
  IdentityAgent none
  BatchMode yes
  ConnectTimeout 10
  LogLevel ERROR
"""


@contextlib.contextmanager
def sshd(names: Sequence[str], hosts: Mapping[str, Any] | None = None) -> Iterator[list[str]]:
    """Run an SSH server for each name; give the arguments with which ssh finds them.

    Parameters
    ----------
    names
        What ssh calls them. All are this machine, on loopback, with one server for all, but
        those that ``hosts`` has.
    hosts
        Name -> a host of ``labkit.hosts``, which gets a server of its own.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="sshd-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if os.geteuid() == 0 and not EMPTY.exists():
            EMPTY.mkdir(mode=0o755, exist_ok=True)
        for key in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(command, check=True, timeout=20)
        (folder / "known").write_text("labkit-test " + (folder / "host.pub").read_text())
        user = getpass.getuser()
        here = free_port()
        client = ""
        for name in names:
            host = (hosts or {}).get(name)
            address, port = (host.address, 22) if host else ("127.0.0.1", here)
            client += CLIENT.format(name=name, address=address, port=port, user=user, folder=folder)
            config = folder / f"sshd-{address}"
            if not config.exists():
                config.write_text(
                    SERVER.format(address=address, port=port, user=user, folder=folder)
                )
                stack.enter_context(_server(config, host))
                _wait_for(address, port, host)
        (folder / "config").write_text(client)
        yield ["-F", str(folder / "config")]


@contextlib.contextmanager
def _server(config: Path, host: Any) -> Iterator[None]:
    program = system.find("sshd")
    assert program is not None
    # By its absolute path: it starts itself anew for each connection.
    command = [program, "-D", "-e", "-f", str(config)]
    log = config.with_suffix(".log")
    with open(log, "wb") as file:
        if host is not None:
            process = host.popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        else:
            command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
            process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


def _wait_for(address: str, port: int, host: Any) -> None:
    """Wait until a server listens."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with socket.create_connection((address, port), timeout=1):
                return
        except OSError:
            assert time.monotonic() < deadline, f"no sshd on {address}:{port} ({host})"
            time.sleep(0.02)
