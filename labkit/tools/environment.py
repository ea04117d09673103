"""What the programs and kernels that the command line starts need."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from typing import NoReturn

from ..base import variables


def kernel_environment(ranks: int | None = None) -> dict[str, str]:
    """Return this process's variables for a kernel, or for the Jupyter server that starts it.

    The commands of this Python (``torchrun``, ``labkit``) come first on the PATH: with
    ``.venv/bin/labkit`` nobody has activated anything. ``ranks``, if given, is what
    ``labkit.start`` shall give whatever a notebook asks for.
    """
    environment = dict(os.environ)
    scripts = sysconfig.get_path("scripts")
    paths = environment.get("PATH", os.defpath).split(os.pathsep)
    if paths[0] != scripts:
        environment["PATH"] = os.pathsep.join([scripts, *paths])
    if ranks is not None:
        environment[variables.RANKS] = str(ranks)
    return environment


def become(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> NoReturn:
    """Turn this process into another program: signals and the exit status are then its own.

    It gets the variables of a kernel, if no others are given.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(argv[0], list(argv), environment or kernel_environment())


def encryption() -> dict[str, str]:
    """Return what a KernelManager is to be told, so that what its kernel and its front end say to
    each other is encrypted; nothing where jupyter_client or ZeroMQ cannot.

    A kernel listens on loopback. Its messages are signed, so nobody else gets a cell run; but
    without encryption every user of the machine can subscribe to what the kernel prints.
    """
    import zmq
    from jupyter_client.manager import KernelManager

    return (
        {"transport_encryption": "auto"}
        if hasattr(KernelManager, "transport_encryption") and zmq.has("curve")
        else {}
    )


def unencrypted_reason() -> str:
    """Return why the kernels that labkit's commands start are not encrypted, "" if they are."""
    from jupyter_client.kernelspec import NoSuchKernel, get_kernel_spec

    if not encryption():
        return "this jupyter_client, or its ZeroMQ, cannot encrypt"
    try:
        known = get_kernel_spec("python3").metadata
    except NoSuchKernel:
        return "no kernel python3 is installed"
    return "" if "supported_encryption" in known else "this ipykernel cannot encrypt"
