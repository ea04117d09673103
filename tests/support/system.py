"""Name what some tests need beyond Python, and skip them where it is missing.

Each need stands here once: what to call it, the command that shows that it is there, and the
Debian packages that bring it. The Makefile's ``SYSTEM_PACKAGES`` lists the same packages.
"""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass

import pytest

from labkit import hosts

#: Servers such as sshd are here, where only root looks.
SERVER_FOLDERS = ("/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Need:
    """One thing that tests need."""

    title: str  #: as a sentence names it
    command: str
    packages: tuple[str, ...]  #: of Debian


NEEDS = {
    # DejaVu has the code font that JupyterLab asks for, Liberation the one for its text.
    "chromium": Need("Chromium", "chromium", ("chromium", "fonts-dejavu-core", "fonts-liberation")),
    "ip": Need("iproute2 (ip)", "ip", ("iproute2",)),
    "sshd": Need("an OpenSSH server", "sshd", ("openssh-server", "openssh-client")),
    "mpi": Need("Open MPI or MPICH", "mpiexec", ("openmpi-bin",)),
    "gdb": Need("gdb", "gdb", ("gdb",)),
    "slurm": Need("Slurm", "slurmctld", ("slurmctld", "slurmd", "slurm-client", "munge")),
}


def find(name: str) -> str | None:
    """Return the path of the command that a need stands for, None if it is not there."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SERVER_FOLDERS])
    return shutil.which(NEEDS[name].command, path=path)


def needs(name: str) -> pytest.MarkDecorator:
    """Mark tests that are skipped without a need: ``pytestmark = needs("chromium")``.

    In CI they are not skipped: ``make test`` has called ``make system-deps`` there, so that
    something which is missing after all is a failure.
    """
    missing = find(name) is None and os.environ.get("CI") != "true"
    return pytest.mark.skipif(missing, reason=f"needs {NEEDS[name].title}: make system-deps")


def packages() -> list[str]:
    """List the Debian packages of all needs, each once, in their order."""
    return list(dict.fromkeys(package for need in NEEDS.values() for package in need.packages))


@functools.cache
def needs_hosts(*, reach: bool = False) -> pytest.MarkDecorator:
    """Mark tests that make several hosts on this machine (``labkit.hosts``); the same rule.

    With ``reach`` this machine reaches them too, which needs root.
    """
    why = hosts.unavailable_reason(reach=reach)
    return pytest.mark.skipif(bool(why) and os.environ.get("CI") != "true", reason=why)
