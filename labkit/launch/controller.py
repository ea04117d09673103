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
from typing import Any

from ipyparallel.controller.app import IPController

from ..wire.protocol import LAB_FOLDER, LAST_COMMAND, OWNER_PID
from . import ipyparallel_internals


class LabController(IPController):
    """An IPController that lives in a single process and can listen on unix sockets.

    Stock, the heart monitor is a child process that outlives a killed controller, and engines
    and clients spell a unix socket's name differently from the controller.
    """

    name = "ipcontroller"

    def init_hub(self) -> None:
        super().init_hub()
        ipyparallel_internals.measure_heartbeats_in_thread(self)


ipyparallel_internals.use_unix_sockets(LabController)


#: Seconds between looks at the owner.
LOOK_SECONDS = 0.25


class OwnedController(LabController):
    """A controller that ends with the process that started it, and passes on how ranks end.

    The ranks end with the controller (``remote``), wherever they are.
    """

    def init_hub(self) -> None:
        super().init_hub()
        # Before the hub's own notice: whoever waits for the rank then knows already.
        ipyparallel_internals.add_notice(self.hub, "labkit_exit", _describe_exit)


def _describe_exit(content: Mapping[str, Any]) -> dict[str, Any]:
    """Say how a rank has ended, from what it or the process beside it wrote to the hub."""
    return {"engine": content.get("id"), "code": content.get("code")}


def _follow_owner() -> None:
    """End this process when its owner has ended, and tidy up in its place."""
    owner = int(os.environ[OWNER_PID])
    while os.getppid() == owner:
        time.sleep(LOOK_SECONDS)
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


if __name__ == "__main__":
    threading.Thread(target=_follow_owner, name="labkit-owner", daemon=True).start()
    main(sys.argv[1:], OwnedController)
