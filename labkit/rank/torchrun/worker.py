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
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from ...wire.family import end_by_signal, end_with_parent, leave
from ...wire.torchrun import DONE, ERROR, ERROR_FILE, FAILED, RANK
from . import others, training, watch

#: An error is printed, as Python does; or kept for the notebook, which shows each error once.
PRINT, KEEP = "print", "keep"
#: Keeps the working folder off the path of modules; learned from torchrun, not for the script.
SAFE_PATH = "PYTHONSAFEPATH"


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
            others.wait(os.getppid(), _have_ended, int(agent))
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
        return text.rstrip().rpartition("\n")[2].removeprefix("labkit.errors.LabError: ")
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
    """Tell whether each worker of this node has failed or reached the end of its script."""
    place = os.environ.get(ERROR_FILE)
    if not place:
        return True
    everyone = Path(place).parent.parent
    told = sum(1 for name in (ERROR, DONE) for _ in everyone.glob(f"*/{name}"))
    return told >= int(os.environ["LOCAL_WORLD_SIZE"])


def _note(name: str, text: str) -> None:
    """Write beside this worker's files."""
    if place := os.environ.get(ERROR_FILE):
        with contextlib.suppress(OSError):
            Path(place).with_name(name).write_text(text)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    main(sys.argv[1:])
