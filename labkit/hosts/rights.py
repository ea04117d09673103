"""Make namespaces as root, or as any user inside a user namespace of one's own.

In a user namespace whoever made it is root, over the namespaces inside it and over nothing else:
what belongs to others on this machine stays as safe as it was. Some systems allow that to root
only.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..base.errors import StartError
from . import commands

#: What the kernel asks for in every step, as bits of ``CapEff``: CAP_NET_ADMIN, CAP_SYS_ADMIN.
_NEEDED = 1 << 12 | 1 << 21
#: Settings by which systems forbid user namespaces, and the value that does.
_SWITCHES = {
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
    "user/max_user_namespaces": "0",
}


def are_roots() -> bool:
    """Return whether this process may make namespaces as it is."""
    status = Path("/proc/self/status").read_text()
    (bits,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return os.geteuid() == 0 and int(bits, 16) & _NEEDED == _NEEDED


def as_own_user() -> list[str]:
    """Return the words before a command that run it in a new user namespace."""
    return [commands.find("unshare"), "--user", "--map-root-user"]


def check_user() -> None:
    """Try to make a user namespace, and in it what a host is made of.

    Raises
    ------
    StartError
        If this system forbids it.
    """
    try:
        commands.do([*as_own_user(), "--net", "--uts", "--mount", "true"])
    except StartError as error:
        raise StartError(
            "Several hosts on one machine need root here: this system lets no other user make "
            f"namespaces ({_reason(error)})."
        ) from error


def _reason(error: StartError) -> str:
    """Name the setting that forbids user namespaces, or else what unshare said."""
    for name, value in _SWITCHES.items():
        path = Path("/proc/sys", name)
        if path.exists() and path.read_text().strip() == value:
            return f"{name.replace('/', '.')} is {value}"
    return str(error).rpartition("machine: ")[2].rstrip(".")
