"""Run a script as a worker of torchrun: as ``python script.py`` does, and tell of its end.

Is forked (``launch.torchrun_owner``), or runs as ``python -m labkit.rank.torchrun.worker AGENT
MODE SOCKET CELL SCRIPT ARGS...``: AGENT is the process id of torchrun, MODE what becomes of an
error, SOCKET where the notebook asks what this worker waits for, CELL the name of the cell whose
text SCRIPT is. Without a cell it is "".
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import json
import linecache
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

import psutil

from ...base import times
from ...wire.processes import end_by_signal, end_with_parent, leave
from ...wire.protocol import DONE, ERROR, ERROR_FILE, FAILED, RANK
from . import training, watch

#: An error is printed, as Python does; or kept for the notebook, which shows each error once.
PRINT, KEEP = "print", "keep"
#: Keeps the working folder off the path of modules; learned from torchrun, not for the script.
SAFE_PATH = "PYTHONSAFEPATH"


#: A process that may still meet an error.
_AT_WORK = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
#: The folder of what runs on a rank.
_RANK = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def main(argv: list[str]) -> None:
    """Run a script, and end this process as Python ends it, but for tearing torch down: that takes
    half a second of a core, and aborts a process now and then whose peers have gone."""
    agent, mode, socket, cell, script, *args = argv
    os.environ.pop(SAFE_PATH, None)
    _note(RANK, os.environ["RANK"])
    name = cell or script  # as Python is to call it
    sys.argv = [script, *args]
    folder = os.getcwd() if cell else os.path.dirname(os.path.realpath(script))
    sys.path.insert(0, folder)
    code: list[int] = []
    atexit.register(_leave, code)  # the first one: all others run before

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Take the place of ``sys.excepthook``: leave out the lines that lead to the script."""
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        text = "".join(_without_ours(traceback.TracebackException(kind, error, trace)).format())
        if mode == PRINT:
            sys.stderr.write(text)
        else:
            said = _brief(kind.__name__, str(error))
            _note(ERROR, json.dumps({"type": kind.__name__, "message": said, "text": text}))
            _wait_for_others(os.getppid(), _have_ended, int(agent))
        # Python ends the latter by the signal that it stands for.
        code.append(FAILED if kind is not KeyboardInterrupt else -signal.SIGINT)

    sys.excepthook = tell
    main_module = ModuleType("__main__")
    vars(main_module).update(
        __file__=script,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", script),
    )
    sys.modules["__main__"] = main_module
    source = Path(script).read_bytes()
    if cell:
        text = source.decode()
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    telling = training.teller()
    watch.begin_with_torch(socket, name, telling)
    compiled = compile(source, name, "exec", dont_inherit=True)
    try:
        exec(compiled, vars(main_module))
        _note(DONE, "")
        code.append(0)
    except SystemExit as left:
        code.append(_code_of(left))
        raise
    finally:
        if telling is not None:
            telling.end()
        watch.end()


def _brief(kind: str, text: str) -> str:
    """Return the line of an error's text that says what it is."""
    if kind == "ProcessRaisedException":  # of mp.spawn: the traceback of a process of its own
        return text.rstrip().rpartition("\n")[2].removeprefix("labkit.LabError: ")
    return text.split("\n", 1)[0]


def _without_ours(told: traceback.TracebackException) -> traceback.TracebackException:
    """Leave out what stands between torch's Python and its C++ (see ``rank.observe``)."""
    frames = [frame for frame in told.stack if not frame.filename.startswith(_RANK)]
    told.stack = traceback.StackSummary.from_list(frames)
    for before in (told.__cause__, told.__context__):
        if before is not None:
            _without_ours(before)
    return told


def _leave(code: list[int]) -> None:
    """End this process with the code that stands there, if one does, as Python ends it, but for
    tearing torch down. Threads and exit handlers have ended."""
    if code:
        logging.shutdown()
        if code[-1] < 0:
            end_by_signal(-code[-1])
        leave(code[-1])


def _code_of(left: SystemExit) -> int:
    """Return the exit code that Python makes of it."""
    if left.code is None or isinstance(left.code, int):
        return (left.code or 0) & 0xFF
    return FAILED


def _have_ended() -> bool:
    """Return whether each worker of this node has failed or reached the end of its script."""
    place = os.environ.get(ERROR_FILE)
    if not place:
        return True
    everyone = Path(place).parent.parent
    told = sum(1 for name in (ERROR, DONE) for _ in everyone.glob(f"*/{name}"))
    return told >= int(os.environ["LOCAL_WORLD_SIZE"])


def _wait_for_others(parent: int, have_ended: Callable[[], bool], agent: int = 0) -> None:
    """Wait until the other workers have ended, or none of them can be expected to soon.

    torchrun ends them all as soon as it sees that one has gone. Which of them have told of the same
    error by then would be chance, and more so on a busy machine.

    Parameters
    ----------
    parent
        The process id of the workers' parent.
    have_ended
        Tells whether all have ended, as far as they say so.
    agent
        The process id of torchrun, which is no worker: the parent, or another child of it.
    """
    found: dict[int, _Other] = {}
    expected = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1
    deadline = time.monotonic() + times.OTHERS_ENDED.seconds()
    while not have_ended() and time.monotonic() < deadline:
        for process in _others(parent, agent):
            found.setdefault(process.pid, _Other(process)).look()
        all_there = len(found) >= expected  # on a busy machine one may still have to be forked
        if all_there and not any(other.may_follow() for other in found.values()):
            return
        time.sleep(times.OTHERS_LOOK)


def _others(parent: int, agent: int) -> list[psutil.Process]:
    try:
        family = psutil.Process(parent).children()
        return [p for p in family if p.pid not in (os.getpid(), agent)]
    except psutil.Error:
        return []


class _Other:
    """Another worker, as the system sees it."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._first = self._last = -1.0  # seconds of processor time
        self._moved = time.monotonic()

    def look(self) -> None:
        try:
            with self._process.oneshot():
                used, status = self._process.cpu_times(), self._process.status()
        except psutil.Error:
            return
        seconds = used.user + used.system
        if self._first < 0:
            self._first = seconds
        if seconds != self._last or status in _AT_WORK:
            self._moved = time.monotonic()
        self._last = seconds

    def may_follow(self) -> bool:
        """Return whether it may be on its way to the same error."""
        idle = time.monotonic() - self._moved
        return (
            idle < times.OTHER_IDLE.seconds()
            and self._last - self._first < times.OTHER_COMPUTED.seconds()
        )


def _note(name: str, text: str) -> None:
    """Write beside this worker's files."""
    if place := os.environ.get(ERROR_FILE):
        with contextlib.suppress(OSError):
            Path(place).with_name(name).write_text(text)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    main(sys.argv[1:])
