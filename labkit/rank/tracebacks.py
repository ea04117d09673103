"""Name the cells that run on a rank, and keep their errors and warnings short.

The notebook sends a cell with its ``%%px`` line turned into the comment ``#px In[7]``: line
numbers are those the learner sees, and the comment names the cell. Where there was no such line
(``%px``, ``%autopx``) the comment comes last.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import tqdm.std

from ..base.errors import LabError
from ..wire.texts import STACKS
from . import ipython_internals

MARK = re.compile(r"\A#px (In\[\d+\])|^#px (In\[\d+\])\Z", re.MULTILINE)
#: labkit's own files: some stand between torch's Python and its C++ (see ``p2p_record``), others
#: call what a cell has defined. As the place of an error they tell a learner nothing.
_LABKIT = str(Path(__file__).parents[1]) + os.sep
_SITE = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3\.\d+/")


#: Called with each error before it is formatted; they may change what it says.
explainers: list[Callable[[BaseException], None]] = []

#: Files of scripts that run as a worker of torchrun, which count as cells.
scripts: set[str] = set()


def has_shell() -> bool:
    """Return whether this process is an engine: a worker of torchrun has no shell."""
    module = sys.modules.get("ipykernel.zmqshell")
    return module is not None and bool(module.ZMQInteractiveShell.initialized())


def get_shell() -> Any:
    """Return the IPython shell of this engine."""
    from ipykernel.zmqshell import ZMQInteractiveShell

    return ZMQInteractiveShell.instance()


def install(shell: Any, explain: Callable[[BaseException], None]) -> None:
    """Make this engine name cells after the notebook's, and format errors and warnings.

    ``explain`` is called with each error before that, and may change what it says.
    """
    explainers.append(explain)
    ipython_internals.name_cells(shell, find_name)
    ipython_internals.format_errors(shell, format_exception)
    warnings.formatwarning = format_warning
    # tqdm.auto takes a rank for a notebook's kernel and wants widgets; here its bars are text.
    sys.modules["tqdm.notebook"] = tqdm.notebook = tqdm.std


def find_name(code: str) -> str | None:
    """Return the name that the notebook has given a cell, None if it has not."""
    match = MARK.search(code)
    return match[match.lastindex or 0] if match else None


def is_cell(filename: str) -> bool:
    """Return whether a code object's file name is that of a notebook cell."""
    return filename.startswith("In[") or "/ipykernel_" in filename or filename in scripts


def tidy(error: BaseException) -> str:
    """Return the error's message without torch's C++ stack."""
    text = str(error)
    for begin in STACKS:
        text = text.split(begin)[0]
    return text


def format_exception(error: BaseException, message: str | None = None) -> list[str]:
    """Format an error in a few lines: what it says, and the lines of the cells it came through.

    Frames inside libraries are left out, but for the innermost one. ``message`` is what it says,
    where that is not its own text.
    """
    for explain in explainers:
        explain(error)
    name = type(error).__name__
    message = tidy(error) if message is None else message
    lines = [f"{name}: {message}" if message else name]
    if isinstance(error, LabError):  # its sentence says all; our own frames would add nothing
        frames = [f for f in traceback.extract_tb(error.__traceback__) if is_cell(f.filename)]
    else:
        frames = list(traceback.extract_tb(error.__traceback__))
        while frames and frames[-1].filename.startswith(_LABKIT):  # called by torch, or by a trial
            frames.pop()
    shown = [i for i, f in enumerate(frames) if is_cell(f.filename)]
    for i in shown[:1] + shown[1:][-3:]:  # where it began, and the last three
        frame = frames[i]
        assert frame.lineno is not None
        where = f", in {frame.name}" if frame.name != "<module>" else ""
        lines.append(f"  {place(frame.filename)}line {frame.lineno}{where}")
        lines += _context(frame.filename, frame.lineno)
    if frames and not is_cell(frames[-1].filename):
        last = frames[-1]
        lines.append(f"  raised in {_SITE.sub('', last.filename)}:{last.lineno}, {last.name}")
    if error.__cause__ is not None:
        lines.append(f"  caused by {type(error.__cause__).__name__}: {tidy(error.__cause__)}")
    return lines


def place(filename: str) -> str:
    """Name a cell for a reader: ``In[7], `` or nothing where it has no number."""
    return f"{filename}, " if filename.startswith("In[") or filename in scripts else ""


def _context(filename: str, lineno: int) -> list[str]:
    """Show the line and its two neighbours, the line itself marked."""
    out = []
    for number in range(lineno - 1, lineno + 2):
        text = linecache.getline(filename, number).rstrip()
        if not text or MARK.match(text):
            continue
        out.append(f"  {'-->' if number == lineno else '   '} {number:3} {text}")
    return out


def format_warning(
    message: Any, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format a warning in one line; for one that a cell caused, with the cell's line."""
    if is_cell(filename):
        where = f"{place(filename)}line {lineno}"
    else:
        where = f"{_SITE.sub('', filename)}:{lineno}"
        with contextlib.suppress(FileNotFoundError):  # the working folder was deleted
            where = where.replace(str(Path.cwd()) + os.sep, "")
    return f"{category.__name__} ({where}): {message}\n"


def innermost(frame: FrameType | None) -> tuple[str, str] | None:
    """Return place and text of the innermost line of a cell that a stack stands in."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_cell(filename):
            return describe(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def outermost(frame: FrameType | None) -> str:
    """Return the place of the line of the cell that runs, "" if none does."""
    found = ""
    while frame is not None:
        if frame.f_code.co_filename.startswith("In["):
            found = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
        frame = frame.f_back
    return found


def describe(filename: str, lineno: int, function: str = "") -> tuple[str, str]:
    """Return place and text of one line: ``("In[7], line 3", "dist.barrier()")``.

    Of a function that came from the notebook there is its name and no text.
    """
    named = "" if place(filename) or function in ("", "<module>") else f"{function}, "
    where = f"{place(filename)}{named}line {lineno}"
    return where, linecache.getline(filename, lineno).strip()
