"""Run the ipyparallel controller in one process, on unix sockets of a private folder."""

from __future__ import annotations

import threading

from ipyparallel.controller.app import IPController
from ipyparallel.controller.heartmonitor import start_heartmonitor


class LabController(IPController):
    """An IPController that lives in a single process and can listen on unix sockets.

    Stock, the heart monitor is a child process that outlives a killed controller, and engines
    and clients spell a unix socket's name differently from the controller (``dir:7``, ``dir-7``).
    """

    name = "ipcontroller"

    def construct_url(self, kind: str, channel: str, index: object = None) -> str:
        info = getattr(self, f"{kind}_info")
        port = info[channel] if index is None else info[channel][index]
        return f"{info['interface']}:{port}"

    def init_hub(self) -> None:
        super().init_hub()
        settings = self.heartmonitor_process._kwargs  # type: ignore[has-type]
        self.heartmonitor_process = threading.Thread(
            target=start_heartmonitor, kwargs=settings, name="heartmonitor", daemon=True
        )


def main(argv: list[str]) -> None:
    """Run a controller until it is told to stop."""
    app = LabController.instance()
    app.initialize(argv)
    app.start()
