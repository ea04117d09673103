"""One host: run commands on it, see what runs there, pull its plug."""

from __future__ import annotations

import os
import shlex
import subprocess
import textwrap
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from ..base import times
from ..base.errors import LabError, LabStopped
from . import namespaces

# Set for what Host.run starts, so that all of it is found again.
_MARK = "LABKIT_HOSTS_RUN"


class Host:
    """One host of a network.

    Examples
    --------
    >>> with labkit.hosts.network(1) as (h1,):
    ...     h1.name, h1.address.startswith("10.77.")
    ('h1', True)
    """

    def __init__(self, name: str, address: str, holder: int, enter: Sequence[str]) -> None:
        self.name = name  #: "h1", as the other hosts know it
        self.address = address  #: IPv4
        self._holder = holder
        self._enter = enter
        self._namespace = namespaces.hold_open(holder)
        self._started: list[subprocess.Popen[Any]] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"Host({self.name!r}, {self.address!r})"

    def argv(self, command: Sequence[str], *, cwd: str | os.PathLike[str] = "") -> list[str]:
        """Return the arguments that run ``command`` on this host, in ``cwd`` or this folder.

        Raises
        ------
        LabStopped
            If the network was closed.

        Examples
        --------
        >>> with labkit.hosts.network(1) as (h1,):
        ...     h1.argv(["hostname"], cwd="/")[-3:]
        ['env', '--chdir=/', 'hostname']
        """
        if self._closed:
            raise LabStopped(f"The network of {self.name} was closed.")
        spaces = ["--target", str(self._holder), "--net", "--uts", "--mount"]
        # nsenter ends up in "/", so env goes back.
        return [*self._enter, *spaces, "env", f"--chdir={cwd or os.getcwd()}", *command]

    def popen(
        self, command: Sequence[str], *, cwd: str | os.PathLike[str] = "", **keywords: Any
    ) -> subprocess.Popen[Any]:
        """Start a command on this host, in a session of its own.

        It ends with the network at the latest. Signals reach the command itself. The keywords
        are those of ``subprocess.Popen``.

        Raises
        ------
        LabStopped
            If the network was closed.

        Examples
        --------
        >>> with labkit.hosts.network(1) as (h1,):
        ...     process = h1.popen(["sleep", "60"])  # ends with the network
        >>> process.returncode
        -9
        """
        keywords = {"start_new_session": True, **keywords}
        process = subprocess.Popen(self.argv(command, cwd=cwd), **keywords)
        self._started.append(process)
        return process

    def run(
        self,
        command: Sequence[str],
        *,
        timeout: float = times.HOST_COMMAND,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host; return its exit code and what it wrote.

        What it leaves in the background goes on, unless it holds on to the output.

        Raises
        ------
        LabError
            If that took more than ``timeout`` seconds; all that it started was killed.

        Examples
        --------
        >>> with labkit.hosts.network(1) as (h1,):
        ...     h1.run(["hostname"]).stdout
        'h1\\n'
        """
        mark = uuid.uuid4().hex
        with self.popen(
            command,
            cwd=cwd,
            env={**(os.environ if env is None else env), _MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException as error:
                process.kill()
                namespaces.kill(lambda: [p for p in self.processes() if _has(p, mark)])
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                last = "".join(process.communicate(timeout=times.HOST_STEP)).splitlines()[-1:]
                short = textwrap.shorten(shlex.join(command), 60, placeholder=" …")
                raise LabError(
                    f"On {self.name}, {short} did not end within {timeout:g} s and was killed; "
                    + (f"its last line was: {last[0]}" if last else "it had written nothing.")
                ) from error
        return subprocess.CompletedProcess(list(command), process.returncode, out, err)

    def processes(self) -> list[psutil.Process]:
        """List what runs on this host, whoever started it.

        Examples
        --------
        >>> with labkit.hosts.network(1) as (h1,):
        ...     done = h1.run(["sh", "-c", "sleep 60 > /dev/null 2>&1 &"])
        ...     len(h1.processes())
        1
        """
        return [p for p in namespaces.processes([self._namespace]) if p.pid != self._holder]

    def kill(self) -> None:
        """Kill all that runs on this host, as if its plug were pulled; it can run more then.

        Examples
        --------
        >>> with labkit.hosts.network(1) as (h1,):
        ...     process = h1.popen(["sleep", "60"])
        ...     h1.kill()
        ...     h1.processes(), process.wait()
        ([], -9)
        """
        self._kill_started()
        namespaces.kill(self.processes)

    def _kill_started(self) -> None:
        """Kill what was started here, also what is still on its way to the host: nobody finds
        that by the host's namespace."""
        for process in self._started:
            process.kill()

    def _end(self) -> None:
        """Start nothing more here, and kill what was started."""
        self._closed = True
        self._kill_started()

    def _close(self) -> None:
        """Wait for what was started here and has been killed."""
        for process in self._started:
            process.wait(times.HOST_STEP)
        os.close(self._namespace)


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except psutil.Error:
        return False
