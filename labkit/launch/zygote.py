"""Keep one process that has imported torch, and fork from it what else would import it again.

Runs as ``python -m labkit.launch.zygote FD FOLDER PRELOAD...``: FD is one end of a socket pair
whose other end the owner holds (a JupyterLab server, a run of tests), FOLDER a private one to
remove at the end. It listens at the unix socket ``FOLDER/zygote``, and answers when all is
imported. What it is asked for is the warm process of a lab or the owner of one run of torchrun; the
two files of a request are the child's end of the line to its own owner, and its log.

    -> {"kind": "warm", "argv": [...], "environment": {...}, "fingerprint": {...},
        "settings": {...}}

What is forked belongs to whoever asked for it, and lives on when this process ends. It is refused
to a process in which it would have come out differently (``fingerprint``).

The name is Android's for a process of this kind.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..wire.processes import leave
from . import fingerprint, fork_server, torchrun_owner
from .forker import Forker, Job, close_others, run, write_to
from .zygote_client import ONE_THREAD, READY, SOCKET, TORCHRUN, WARM

#: What a child runs, by kind: called with the number of its line and the request's argv, it
#: returns what that process or one that it has forked is to do.
KINDS: dict[str, Callable[[list[str]], Job | None]] = {
    WARM: fork_server.main,
    TORCHRUN: torchrun_owner.main,
}


class Zygote(Forker):
    """Serve requests for warm processes until the owner goes away."""

    def __init__(self, owner: socket.socket) -> None:
        super().__init__(owner)
        self.environment = dict(os.environ)
        self.fingerprint = fingerprint.describe()  # before anything is imported

    def refusal(self, request: Mapping[str, Any]) -> str:
        for what, own in self.fingerprint.items():
            if request["fingerprint"].get(what) != own:
                return f"another {what} there"
        # What is said for this process is what is meant where nothing is said.
        other = {**ONE_THREAD, **request["environment"]}
        names = fingerprint.differing(self.environment, other)
        if names:
            return f"other variables there: {', '.join(names)}"
        return "" if request["kind"] in KINDS else "it forks no such thing"

    def job(self, request: Mapping[str, Any], files: list[int]) -> Job:
        keep, log = files
        close_others(*files)  # what locks the folder
        write_to(log, log)
        fingerprint.take_over(request["settings"], request["environment"])
        fingerprint.adapt(request["environment"])
        return lambda: KINDS[request["kind"]]([str(keep), *request["argv"]])


def main(argv: list[str]) -> Job | None:
    """Serve; return in a child only, with its job."""
    number, folder, *preload = argv
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the owner's terminal
    zygote = Zygote(socket.socket(fileno=int(number)))
    zygote.listen(Path(folder, SOCKET))
    fork_server.import_shared(preload)
    Path(folder, READY).touch()
    if job := zygote.serve():
        return job
    shutil.rmtree(folder, ignore_errors=True)
    leave()


if __name__ == "__main__":
    # A child's job runs from here, and a rank's outside the frames of its warm process, too.
    run(main(sys.argv[1:]))
