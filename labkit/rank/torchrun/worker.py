"""Run a script as a worker of torchrun: as ``python script.py`` does, and tell of its end.

Runs as ``python -m labkit.rank.torchrun.worker AGENT MODE SOCKET CELL SCRIPT ARGS...``: AGENT is
the process id of torchrun, MODE what becomes of an error, SOCKET where the notebook asks what this
worker waits for, CELL the name of the cell whose text SCRIPT is. Without a cell it is "".
"""

from __future__ import annotations

import builtins
import contextlib
import json
import linecache
import os
import sys
import time
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from ...wire.family import end_with_parent
from ...wire.torchrun import ERROR, ERROR_FILE, RANK
from . import training, watch

#: An error is printed, as Python does; or kept for the notebook, which shows each error once.
PRINT, KEEP = "print", "keep"
#: Keeps the working folder off the path of modules; learned from torchrun, not for the script.
SAFE_PATH = "PYTHONSAFEPATH"


#: Seconds that a worker which has failed waits for the others.
OTHERS_SECONDS = 1.0
#: The folder of what runs on a rank.
_RANK = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def main(argv: list[str]) -> None:
    agent, mode, socket, cell, script, *args = argv
    end_with_parent(int(agent))
    os.environ.pop(SAFE_PATH, None)
    _note(RANK, os.environ["RANK"])
    name = cell or script  # as Python is to call it
    sys.argv = [script, *args]
    folder = os.getcwd() if cell else os.path.dirname(os.path.realpath(script))
    sys.path.insert(0, folder)

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Take the place of ``sys.excepthook``: leave out the lines that lead to the script."""
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        text = "".join(_without_ours(traceback.TracebackException(kind, error, trace)).format())
        if mode == PRINT:
            sys.stderr.write(text)
        else:
            said = str(error).split("\n", 1)[0]
            _note(ERROR, json.dumps({"type": kind.__name__, "message": said, "text": text}))
            _wait_for_others()

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
    code = compile(source, name, "exec", dont_inherit=True)
    try:
        exec(code, vars(main_module))
    finally:
        if telling is not None:
            telling.end()
        watch.end()


def _without_ours(told: traceback.TracebackException) -> traceback.TracebackException:
    """Leave out what stands between torch's Python and its C++ (see ``rank.observe``)."""
    frames = [frame for frame in told.stack if not frame.filename.startswith(_RANK)]
    told.stack = traceback.StackSummary.from_list(frames)
    for before in (told.__cause__, told.__context__):
        if before is not None:
            _without_ours(before)
    return told


def _wait_for_others() -> None:
    """Give the other workers time to meet the same error: torchrun ends them all as soon as it
    sees that one has gone, and which of them have told by then would be chance."""
    place = os.environ.get(ERROR_FILE)
    if not place:
        return
    everyone = Path(place).parent.parent
    deadline = time.monotonic() + OTHERS_SECONDS
    while len(list(everyone.glob(f"*/{ERROR}"))) < int(os.environ["LOCAL_WORLD_SIZE"]):
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _note(name: str, text: str) -> None:
    """Write beside this worker's files."""
    if place := os.environ.get(ERROR_FILE):
        with contextlib.suppress(OSError):
            Path(place).with_name(name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
