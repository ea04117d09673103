"""Start a zygote and end with it.

A zygote belongs to what many labs are started in, one after the other or side by side: a
JupyterLab server, a run of notebooks or tests. The variable ``LABKIT_ZYGOTE`` names its folder to
all that is started there; ``labkit.start`` asks it for a warm process, and starts one itself where
there is no zygote, where it is not ready yet, or where its warm process would be another one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping

from .. import times
from ..errors import StartError
from . import private_folder
from .warm_process import PRELOAD, forget_in_children, fork_is_safe
from .zygote_line import ONE_THREAD, VARIABLE

#: What is imported beside ``PRELOAD``, where it is installed: the course's notebooks ask for it.
MORE = ("torchvision",)


class Zygote:
    """A zygote of this process. It ends with it, or with :meth:`close`."""

    def __init__(
        self,
        folder: private_folder.PrivateFolder,
        process: subprocess.Popen[bytes],
        line: socket.socket,
    ) -> None:
        self.folder = folder
        self.process = process
        self._line = line

    @classmethod
    def start(
        cls, environment: Mapping[str, str] | None = None, *, survive_exec: bool = False
    ) -> Zygote | None:
        """Start one and name it in this process's variables; None where none can be had.

        Returns at once: it is of use when it has imported all, some two seconds later.

        Parameters
        ----------
        environment
            The variables of the kernels that will ask it; None: those of this process.
        survive_exec
            Whether this process will become another program, which is then the owner.
        """
        if not fork_is_safe() or os.environ.get(VARIABLE) is not None:
            return None
        try:
            private_folder.sweep()
            folder = private_folder.PrivateFolder()
        except StartError:  # labkit.start will say so
            return None
        ours, theirs = socket.socketpair()
        preload = [*PRELOAD, *(name for name in MORE if importlib.util.find_spec(name))]
        command = [sys.executable, "-P", "-m", __package__ + ".zygote"]
        command += [str(theirs.fileno()), str(folder.path), *preload]
        with theirs, open(folder.path / "zygote.log", "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**(environment or os.environ), **ONE_THREAD},
                # The folder is locked for as long as one of the two lives.
                pass_fds=[theirs.fileno(), *folder.locks()],
                start_new_session=True,
            )
        ours.set_inheritable(survive_exec)
        forget_in_children(ours)
        os.environ[VARIABLE] = str(folder.path)
        return cls(folder, process, ours)

    def close(self) -> None:
        """End it; what it has forked lives on."""
        os.environ.pop(VARIABLE, None)
        self._line.close()
        try:
            self.process.wait(times.ZYGOTE_ENDED.seconds())
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.remove()


@contextlib.contextmanager
def running(environment: Mapping[str, str]) -> Iterator[None]:
    """Have a zygote for kernels with these variables meanwhile, where one can be had."""
    zygote = Zygote.start(environment)
    try:
        yield
    finally:
        if zygote is not None:
            zygote.close()
