"""Run the ipyparallel controller in one process.

The warm process forks it and lets it listen on unix sockets of a private folder. For ranks that
one of ipyparallel's own launchers starts, it runs as ``python -m labkit.launch.controller``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipyparallel.controller.app import IPController
from traitlets import Unicode
from traitlets.config import Config

from ..base import times
from ..wire.processes import leave
from ..wire.protocol import CLIENT, LAB_FOLDER, LAST_COMMAND, OWNER_PID
from . import hub_internals
from .application import LabApplication, skip_unwritten


class LabController(LabApplication, IPController):
    """An IPController that lives in a single process and can listen on unix sockets.

    Original, the heart monitor is a child process that outlives a killed controller, and engines
    and clients spell a unix socket's name differently from the controller.
    """

    name = "ipcontroller"
    #: Seconds between heartbeats. An engine counts as connected after the second one, or when it
    #: says so.
    heartbeat = times.HEARTBEAT

    socket_folder = Unicode(
        config=True,
        help="Listen on unix sockets in this folder, unless an address or transport is set.",
    )

    @classmethod
    def settings(cls) -> Config:
        """Return what differs from an original controller, unless the user sets it."""
        made = Config()
        made.IPController.use_threads = True
        made.IPController.db_class = "NoDB"
        made.HeartMonitor.period = round(1000 * cls.heartbeat)
        misses = round(times.HEARTBEATS_MISSED / cls.heartbeat)
        made.HeartMonitor.max_heartmonitor_misses = misses
        return made

    def initialize(self, argv: list[str] | None = None) -> None:
        super().initialize(argv)
        skip_unwritten(self.log)

    def init_hub(self) -> None:
        settings = self.settings()
        settings.merge(self.config)  # arguments and configuration files win
        self.update_config(settings)
        given = {name for section in self.section_names() for name in self.config[section]}
        free = not given & {"ip", "transport", "location"}
        if self.socket_folder and free and hub_internals.has_unix_sockets():
            self.transport, self.ip, self.location = "ipc", self.socket_folder, "127.0.0.1"
        with (
            hub_internals.without_pause(IPController),
            hub_internals.with_subscribers(IPController),
        ):
            super().init_hub()
        hub_internals.measure_heartbeats_in_thread(self)
        hub_internals.on_client(self.hub, self._note_client)
        hub_internals.hear_ready(self.hub)
        hub_internals.hold_news(self.hub, times.NEWS_HEARD.seconds())
        hub_internals.note_ids_only(self.hub)

    def get_python_scheduler_args(
        self, scheduler_name: str, scheduler_class: type, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        patient = hub_internals.patient(scheduler_class)
        found: dict[str, Any] = super().get_python_scheduler_args(
            scheduler_name, patient, *args, **kwargs
        )
        return found

    def _note_client(self, session: str) -> None:
        """Leave a file for each client, where the lab's owner can see how many there are."""
        if self.socket_folder:
            with contextlib.suppress(OSError):
                (Path(self.socket_folder).parent / f"{CLIENT}{session}").touch()


hub_internals.use_unix_sockets(LabController)


class OwnedController(LabController):
    """A controller that ends with the process that started it, and passes on how ranks end.

    The ranks end with the controller (``external_engine``), wherever they are.
    """

    heartbeat = times.HEARTBEAT_NETWORK

    def init_hub(self) -> None:
        super().init_hub()
        # Before the hub's own notice: whoever waits for the rank then knows already.
        hub_internals.add_notice(self.hub, "labkit_exit", _describe_exit)


def _describe_exit(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a rank has ended, from what it or the process beside it wrote to the hub."""
    return {"engine": content.get("id"), "code": content.get("code")}


def _follow_owner() -> None:
    """End this process when its owner has ended, and tidy up in its place."""
    owner = int(os.environ[OWNER_PID])
    while os.getppid() == owner:
        time.sleep(times.OWNER_LOOK)
    if command := os.environ.get(LAST_COMMAND):
        with contextlib.suppress(OSError):  # it may take longer than this process
            subprocess.Popen(json.loads(command), stdin=subprocess.DEVNULL, start_new_session=True)
    shutil.rmtree(os.environ[LAB_FOLDER], ignore_errors=True)
    os._exit(0)


def main(argv: list[str], kind: type[LabController] = LabController) -> None:
    """Run a controller until it is told to stop."""
    app = kind.instance()
    app.initialize(argv)
    app.start()
    # Its threads would go on for as long as it may take to end, and there is nothing to be saved.
    leave()


if __name__ == "__main__":
    threading.Thread(target=_follow_owner, name="labkit-owner", daemon=True).start()
    main(sys.argv[1:], OwnedController)
