"""Let ``exit()`` and ``sys.exit()`` end the cell that calls them, on its rank, and nothing more.

The rank and its variables stay. A code of 0 or None is no error, as for a program; any other is
one with its cell and line. IPython's own ``exit()`` sets a flag by which the engine ends a moment
later, within whatever it runs then.
"""

from __future__ import annotations

import builtins
import dis
import functools
import linecache
import pkgutil
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NoReturn

from ipykernel.zmqshell import ZMQExitAutocall

from ..wire.python_threads import package
from . import ipython_internals, tracebacks

#: What ``sys.argv[0]`` is in a cell: argparse begins its messages with it.
PROGRAM = "cell"
#: Libraries that read ``sys.argv``, and leave with code 2 where they cannot use it.
_PARSERS = {"absl", "argparse", "click", "docopt", "fire", "optparse", "typer"}
#: How to give them arguments here.
_ARGUMENTS = (
    "To give it arguments, write sys.argv = ['train.py', '3'] above that line, or run the "
    "program as a script with %%torchrun --nproc-per-node=2 -- 3"
)
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 200


class Exit(ZMQExitAutocall):
    """What ``exit`` and ``quit`` are on a rank."""

    def __call__(self, code: object = None, keep_kernel: bool = True) -> NoReturn:
        """Leave the cell; ``keep_kernel`` is ipykernel's, and always so here."""
        raise SystemExit(code)

    def __repr__(self) -> str:
        return "exit() ends the cell on this rank; the rank and its variables stay."

    def __reduce__(self) -> tuple[Any, ...]:
        return pkgutil.resolve_name, ("builtins:exit",)  # in another process: that process's own


def install(shell: Any) -> None:
    """Begin, in the shell of this rank."""
    leave = Exit(shell)
    ipython_internals.give_exit(shell, leave, show)
    shell.push({"exit": leave, "quit": leave}, interactive=False)
    vars(builtins).update(exit=leave, quit=leave)  # for functions of lab.run
    sys.argv[:] = [PROGRAM]  # not the engine's


def is_quiet(error: SystemExit) -> bool:
    """Return whether a program that leaves so has done what it was to do."""
    return error.code is None or (isinstance(error.code, int) and error.code == 0)


def show(error: SystemExit) -> None:
    """Show how a cell was left: as its error; if it is none, in a line where some was not run."""
    if not is_quiet(error):
        ipython_internals.show_error(tracebacks.get_shell(), error, lines(error))
    elif _skips_some(error):
        print(f"{sentence(error)}.", file=sys.stderr)


def as_error(error: SystemExit) -> SystemExit | None:
    """Return the error that a cell has ended with which was left so, None if it is none."""
    return None if is_quiet(error) else SystemExit(sentence(error))


def until_left(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that ends well where this one is left well."""

    @functools.wraps(function)
    def call() -> Any:
        try:
            return function()
        except SystemExit as error:
            if not is_quiet(error):
                raise
            return None

    return call


def lines(error: SystemExit) -> list[str]:
    """Format it as any error of a cell."""
    return tracebacks.format_exception(error, sentence(error))


def sentence(error: SystemExit) -> str:
    """Return what ended the cell, and where."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [(f, line) for f, line in frames if tracebacks.is_cell(f.f_code.co_filename)]
    ended = "ended the call"  # of a function of lab.run
    if own:
        frame, line = own[-1]
        place, _ = tracebacks.describe(frame.f_code.co_filename, line, frame.f_code.co_name)
        what = "cell" if own[0][0].f_code.co_name == "<module>" else "call"
        ended = f"ended the {what} in {place}"
    library = _library(error)
    if library not in _PARSERS or error.code != 2:
        return f"{_call(error, library)} {ended}"
    refused = _refused(error)
    why = f": {refused.rstrip('.')}" if refused else ""
    advice = f". {_ARGUMENTS}" if _reads_argv(error) else ""
    return f"{library} {ended}{why}{advice}"


def _frames(error: SystemExit) -> Iterator[FrameType]:
    return (frame for frame, _ in traceback.walk_tb(error.__traceback__))


def _library(error: SystemExit) -> str:
    """Return the library that left, "" where a line of the learner's own did."""
    *_, last = [None, *_frames(error)]
    if last is None or _is_own(last.f_code) or not package(last.f_code.co_filename):
        return ""
    return str(last.f_globals.get("__name__", "")).partition(".")[0]


def _is_own(code: CodeType) -> bool:
    return code in (Exit.__call__.__code__, ZMQExitAutocall.__call__.__code__)


def _call(error: SystemExit, library: str) -> str:
    """Return the call that has left, as it was written."""
    code = "" if error.code is None else _repr.repr(error.code)
    found = list(traceback.walk_tb(error.__traceback__))
    if library:
        return f"sys.exit({code}) of {library}"
    if found and _is_own(found[-1][0].f_code):
        callers = [(f, line) for f, line in found if not _is_own(f.f_code)]
        line = linecache.getline(callers[-1][0].f_code.co_filename, callers[-1][1])
        name = "quit" if "quit" in line and "exit" not in line else "exit"
        return f"{name}({code})"
    if found and _raises(error):
        return f"raise SystemExit({code})" if code else "raise SystemExit"
    return f"sys.exit({code})"


def _raises(error: SystemExit) -> bool:
    """Return whether a ``raise`` has made it, and no call."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None:
        return False
    return dis.opname[step.tb_frame.f_code.co_code[step.tb_lasti]] == "RAISE_VARARGS"


def _refused(error: SystemExit) -> str:
    """Return what a parser has said of the arguments, "" where it cannot be told."""
    for frame in _frames(error):
        if frame.f_code.co_name == "error":
            said = frame.f_locals.get("message", frame.f_locals.get("msg", ""))
            return said if isinstance(said, str) else ""
    return ""


def _reads_argv(error: SystemExit) -> bool:
    """Return whether a parser was given no arguments, so that it has read ``sys.argv``."""
    for frame in _frames(error):
        if frame.f_code.co_name == "parse_args" and "args" in frame.f_locals:
            return frame.f_locals["args"] is None
    return True


def _skips_some(error: SystemExit) -> bool:
    """Return whether lines come after the one that was left at, in the cell or its functions."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not tracebacks.is_cell(code.co_filename):
            continue
        if code.co_name != "<module>":
            rest = any((number or 0) > line for _, _, number in code.co_lines())
        else:  # of which each statement is a code of its own
            after = linecache.getlines(code.co_filename)[line:]
            rest = any(text.strip() and not text.lstrip().startswith("#") for text in after)
        if rest:
            return True
    return False
