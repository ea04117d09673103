"""Start other programs from the command line, with the variables that they need."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from typing import NoReturn

from .. import variables


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


def become(argv: Sequence[str]) -> NoReturn:
    """Turn this process into another program: signals and the exit status are then its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(argv[0], list(argv), kernel_environment())
