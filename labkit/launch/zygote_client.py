"""Start a zygote, and ask the one that there is to fork what would have to import torch first.

A zygote belongs to what many labs are started in, one after the other or side by side: a
JupyterLab server, a run of notebooks or tests. The variable ``LABKIT_ZYGOTE`` names its folder to
all that is started there; ``labkit.start`` asks it for a warm process, and starts one itself where
there is no zygote, where it is not ready yet, or where its warm process would be another one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from ..base import times, trust
from ..base.errors import StartError
from ..wire import processes
from ..wire.processes import ForkedProcess
from . import fingerprint, private_folder

_log = logging.getLogger(__name__)

#: A process that this one has started, or that a zygote has forked for it.
Process: TypeAlias = "subprocess.Popen[bytes] | ForkedProcess"
#: Imported once in a warm process and shared by every rank.
PRELOAD = ("torch", "torch.distributed", "torch.nn.parallel", "labkit.rank.setup")
#: What a zygote imports beside, where it is installed: the course's notebooks ask for it.
MORE = ("torchvision",)

#: Names the folder of the zygote to the processes that may ask it.
VARIABLE = "LABKIT_ZYGOTE"
#: The names of its socket in there, and of the file that says that all is imported.
SOCKET, READY = "zygote", "ready"
#: What it forks: the warm process of a lab, or what owns one run of torchrun.
WARM, TORCHRUN = "warm", "torchrun"
#: How the log says that it has forked nothing.
REFUSED = "the zygote has refused: "
#: Variables of a zygote: a library that starts threads when it is imported makes forks unsafe.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


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


def start(
    kind: str,
    argv: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    alone: bool = False,
) -> tuple[Process, socket.socket]:
    """Start a process with a line to this one: forked by the zygote, where that does it for us.

    Parameters
    ----------
    kind, argv
        What the zygote is asked for, see :func:`ask`.
    command
        A module, and what follows the line's number, for a process that is started anew.
    environment, log
        Its variables, and where it writes.
    alone
        Whether no zygote is to be asked.

    Raises
    ------
    TimeoutError
        If the zygote is there and does not answer: it may still do what was asked for.
    """
    ours, theirs = socket.socketpair()
    module, *rest = command
    try:
        with open(log, "wb") as file, theirs:
            files = [theirs.fileno(), file.fileno()]
            forked_one = None if alone else ask(kind, argv, environment, files)
            return forked_one or subprocess.Popen(
                # -P: a stray random.py in the learner's folder must not be taken for Python's own.
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), *rest],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            ), ours
    except BaseException:
        ours.close()
        raise


def ask(
    kind: str, argv: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
) -> ForkedProcess | None:
    """Ask the zygote of this process for another one; None if there is none, or not for us.

    Parameters
    ----------
    kind
        What is to be forked: ``WARM`` or ``TORCHRUN``.
    argv
        What it is started with, but for the first number.
    environment
        Its variables.
    files
        Its end of the line to its owner, and its log.

    Raises
    ------
    TimeoutError
        If the zygote is there and does not answer: it may still do what was asked for.
    """
    folder = os.environ.get(VARIABLE, "")
    if not folder or trust.unsafe_reason(folder):
        return None
    request = {
        "kind": kind,
        "argv": list(argv),
        "environment": dict(environment),
        "fingerprint": fingerprint.describe(),
        "settings": fingerprint.describe_settings(),
    }
    try:
        is_ready = Path(folder, READY).exists()
        seconds = times.ZYGOTE_ANSWER.seconds() if is_ready else times.ZYGOTE_IMPORTED
        return processes.ask_to_fork(str(Path(folder) / SOCKET), request, files, seconds)
    except processes.Refused as refusal:
        _log.info("%s%s", REFUSED, refusal)
    except TimeoutError:
        _log.info("the zygote does not answer")
        raise
    except (OSError, EOFError) as error:  # it is not there, or not ready
        _log.debug("no zygote: %s", error)
    return None


def fork_is_safe() -> bool:
    """Return whether ranks can be forked here (Linux; not macOS, whose system libraries may
    start threads on import, and not Windows, which has no fork)."""
    return sys.platform == "linux"


def forget_in_children(line: socket.socket) -> None:
    """Close a socket in every process that this one forks, so that its end is this one's end."""
    known = weakref.ref(line)

    def close() -> None:
        sock = known()
        if sock is not None and sock.fileno() >= 0:
            os.close(sock.detach())  # close() would wait for the reader's file object

    os.register_at_fork(after_in_child=close)
