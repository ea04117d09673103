"""Keep text that cannot be encoded as it is: a lone surrogate, or a sign that the locale lacks.

``os.fsdecode`` gives lone surrogates for names that are not UTF-8, ``json.loads`` for broken
escapes. No message between Jupyter's processes can hold them: without care, an error with one in
its text is an answer that never comes.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from typing import Any

#: The name of our way to write what an encoding lacks, for ``errors=``.
ERRORS = "labkit.legible"
#: How labkit's own signs are written where only ASCII can be.
_SIGNS = str.maketrans({"–": "-", "—": "-", "…": "...", "→": "->", "×": "x", "µ": "u", "│": "|",
                        "─": "-", "▶": ">", "Ⅱ": "=", "○": "o"})  # fmt: skip


def legible(text: str) -> str:
    r"""Return a text with lone surrogates written out, as in ``'\ud800'``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_legible(value: Any) -> Any:
    """Return a value as JSON has it, with every text in it legible."""
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, dict):
        return {all_legible(key): all_legible(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [all_legible(inside) for inside in value]
    return value


def packer(stock: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a packer of JSON messages that packs text with lone surrogates too, as legible."""

    def pack(message: Any) -> bytes:
        try:
            packed = stock(message)
            packed.decode("utf-8")  # some surrogates pass as bytes that are not UTF-8
        except UnicodeError:
            return stock(all_legible(message))
        return packed

    return pack


def _write_out(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_SIGNS)
    return lacking.encode("ascii", "backslashreplace").decode("ascii"), error.end


def mend_streams() -> None:
    """Let stdout and stderr write what their encoding lacks (``LC_ALL=C``), legibly, rather than
    raise. A stream whose user has chosen a way of their own, or that is none of Python's, stays."""
    codecs.register_error(ERRORS, _write_out)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        strict = getattr(stream, "errors", None) in (
            "strict",
            "surrogateescape",
            "backslashreplace",
        )
        encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
        if reconfigure is not None and strict and encoding not in ("", "utf8"):
            reconfigure(errors=ERRORS)
