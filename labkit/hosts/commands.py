"""Find and run the system's commands that hosts are made with, each within a time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from ..base import times
from ..base.errors import StartError

#: Some of the commands are where not every user looks.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}


def check_machine() -> None:
    """Check whether this machine has what hosts need, without trying it.

    Raises
    ------
    StartError
        If something is missing.
    """
    if sys.platform != "linux":
        raise StartError("Several hosts on one machine need Linux: its network namespaces.")
    for tool, package in _PACKAGES.items():
        if shutil.which(tool, path=PATH) is None:
            raise StartError(f"Several hosts on one machine need {tool} (package {package}).")


def find(tool: str) -> str:
    """Return the path of a command."""
    return shutil.which(tool, path=PATH) or tool


def do(command: Sequence[str], text: str = "") -> str:
    """Run a command with ``text`` as its input and return what it wrote.

    Raises
    ------
    StartError
        If it fails or does not end within ``times.HOST_STEP``.
    """
    try:
        done = subprocess.run(
            command,
            input=text,
            env={**os.environ, "PATH": PATH, "LC_ALL": "C"},
            capture_output=True,
            timeout=times.HOST_STEP,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise impossible(f"{command[0]} does not answer") from error
    if done.returncode:
        raise impossible(done.stderr)
    return done.stdout


def impossible(why: str) -> StartError:
    """Return the error that says why no hosts can be made, from what a command wrote."""
    first = (why.splitlines() or ["no reason given"])[0].rstrip(".")
    return StartError(f"Several hosts cannot be made on this machine: {first}.")
