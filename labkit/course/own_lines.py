"""Tell an error of an answer in the notebook as a rank tells its own: what it says, and the lines
of the learner's code that it came through."""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from pathlib import Path

from ..rank_names import red

#: Where code stands that a learner has not written: labkit's, Python's own, and what is installed.
_LABKIT = f"{Path(__file__).parents[1]}/"
_OTHERS = (_LABKIT, *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")))
_SITE = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3\.\d+/")
#: How many places of the learner's code are shown.
MOST = 4


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the places in the learner's code that an error came through, outermost first."""
    return [f for f in traceback.extract_tb(error.__traceback__) if _is_own(f.filename)]


def own_lines(error: BaseException) -> tuple[str, ...]:
    """Return the text of each of these places."""
    return tuple((frame.line or "").strip() for frame in own_frames(error))


def tell(error: BaseException) -> str:
    """Return name and message, each place with its neighbouring lines, and what raised it.

    Frames of labkit are left out: they would tell a learner nothing.
    """
    name, message = type(error).__name__, str(error)
    lines = [f"{red(name)}: {message}" if message else red(name)]
    own = own_frames(error)
    for frame in own[:1] + own[1:][-(MOST - 1) :]:
        where = f", in {frame.name}" if frame.name != "<module>" else ""
        lines.append(f"  line {frame.lineno}{where}")
        lines += _context(frame.filename, frame.lineno or 0)
    last = traceback.extract_tb(error.__traceback__)[-1]
    if own and not _is_own(last.filename) and not last.filename.startswith(_LABKIT):
        lines.append(f"  raised in {_SITE.sub('', last.filename)}:{last.lineno}, {last.name}")
    return "\n".join(lines)


def _is_own(filename: str) -> bool:
    return not filename.startswith((*_OTHERS, "<frozen"))


def _context(filename: str, lineno: int) -> list[str]:
    """Show a line and its two neighbours, the line itself marked."""
    texts = {n: linecache.getline(filename, n).rstrip() for n in range(lineno - 1, lineno + 2)}
    return [
        f"  {'-->' if n == lineno else '   '} {n:3} {text}" for n, text in texts.items() if text
    ]
