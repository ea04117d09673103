"""Run a script as a worker of torchrun: as ``python script.py`` does, and tell of its end.

Runs as ``python -m labkit.rank.torchrun.worker AGENT MODE PLACE SCRIPT ARGS...``: AGENT is the
process id of torchrun, MODE what becomes of an error, PLACE the folder that the script imports
from first.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from ...wire.family import end_with_parent
from ...wire.torchrun import ERROR, ERROR_FILE, RANK

#: An error is printed, as Python does; or kept for the notebook, which shows each error once.
PRINT, KEEP = "print", "keep"
#: The script imports from the working folder first, or from its own.
WORKING, OWN = "working", "own"
#: Keeps the working folder off the path of modules; learned from torchrun, not for the script.
SAFE_PATH = "PYTHONSAFEPATH"


def main(argv: list[str]) -> None:
    agent, mode, place, script, *args = argv
    end_with_parent(int(agent))
    os.environ.pop(SAFE_PATH, None)
    _note(RANK, os.environ["RANK"])
    sys.argv = [script, *args]
    folder = os.getcwd() if place == WORKING else os.path.dirname(os.path.realpath(script))
    sys.path.insert(0, folder)

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Take the place of ``sys.excepthook``: leave out the lines that lead to the script."""
        while trace is not None and trace.tb_frame.f_code.co_filename != script:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(kind, error, trace))
        if mode == PRINT:
            sys.stderr.write(text)
        else:
            said = str(error).split("\n", 1)[0]
            _note(ERROR, json.dumps({"type": kind.__name__, "message": said, "text": text}))

    sys.excepthook = tell
    main_module = ModuleType("__main__")
    vars(main_module).update(
        __file__=script,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", script),
    )
    sys.modules["__main__"] = main_module
    code = compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    exec(code, vars(main_module))


def _note(name: str, text: str) -> None:
    """Write beside this worker's files."""
    if place := os.environ.get(ERROR_FILE):
        with contextlib.suppress(OSError):
            Path(place).with_name(name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
