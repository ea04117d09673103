"""Own one torchrun and all that it starts, so that nothing of it outlives the notebook.

Runs as ``python -m labkit.launch.torchrun_owner FD FOLDER COMMAND...``: FD is one end of a socket
pair whose other end the notebook's kernel holds, FOLDER the private folder of this run, COMMAND
what starts torchrun. When that has ended, when the kernel closes its end or when the kernel is
gone, however it went, every descendant is killed: torchrun puts each worker into a session of its
own, and a worker may start processes too, but what loses its parent falls to this process. The
exit status is torchrun's.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .. import times
from ..wire.family import end_by_signal, end_descendants, end_with_parent, inherit_orphans

#: Where torchrun itself writes, in the folder; the workers write into files of their own.
STDOUT, STDERR = "torchrun.out", "torchrun.err"
#: Where the owner writes, if it has to.
LOG = "owner.log"


def main(argv: list[str]) -> int:
    number, folder, *command = argv
    kernel, line = os.getppid(), socket.socket(fileno=int(number))
    inherit_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the kernel decides
    process = _start(command, Path(folder))
    _wait(process, line, kernel)
    return end(process.poll(), folder, lambda: os.getppid() != kernel)


def end(code: int | None, folder: str, has_no_kernel: Callable[[], bool]) -> int:
    """Kill every descendant, and end as torchrun has ended, or return its exit status.

    The folder is removed if the kernel, which would do that, has gone.
    """
    end_descendants()
    if has_no_kernel():
        shutil.rmtree(folder, ignore_errors=True)
    if code is None:
        return 1
    if code < 0:
        end_by_signal(-code)
    return code


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    own = os.getpid()
    with open(folder / STDOUT, "wb") as out, open(folder / STDERR, "wb") as err:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(own),
        )


def _wait(process: subprocess.Popen[bytes], line: socket.socket, kernel: int) -> None:
    """Wait until torchrun has ended or nobody wants it any more."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the selector
    wanted = True
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while wanted and process.poll() is None and os.getppid() == kernel:
            for key, _ in selector.select(times.KERNEL_LOOK):
                if key.fileobj is woken:
                    woken.recv(4096)
                else:  # closed, or about to be
                    wanted = False
    signal.set_wakeup_fd(-1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
