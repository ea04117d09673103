"""Configure ipyparallel's own launchers: "mpi", "slurm", "ssh" and the others that it has.

Each needs something that its defaults do not give; what it is stands at its function. What the
user sets comes last and wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traitlets.config import Config

#: Launchers whose ranks all run on this machine: their controller listens on loopback only.
LOCAL = ("labkit", "local", "mpi")


def config(engines: str, own: Mapping[str, Mapping[str, Any]]) -> Config:
    """Return the configuration of controller and engines, ``own`` settings of the user over ours.

    ``own`` has the form of a traitlets ``Config``: class, trait, value.
    """
    made = Config()
    _controller(made, local=engines in LOCAL)
    made.LocalEngineSetLauncher.delay = 0.0
    for settings, values in own.items():
        made[settings].update(values)
    return made


def _controller(made: Config, *, local: bool) -> None:
    """Few processes, quick to connect, and on loopback unless the ranks are on other hosts."""
    made.LocalControllerLauncher.controller_args = [
        "--IPController.use_threads=True",
        "--HeartMonitor.period=250",
        "--HeartMonitor.max_heartmonitor_misses=240",
        f"--ip={'127.0.0.1' if local else '*'}",
        "--log-level=30",
    ]
