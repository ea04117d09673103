"""What text has to be encoded, and what torch's C++ writes."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable
from typing import Any

# -- text that cannot be encoded as it is ---------------------------------------------------------

# ``os.fsdecode`` gives lone surrogates for names that are not UTF-8, ``json.loads`` for broken
# escapes. No message between Jupyter's processes can hold them: without care, an error with one in
# its text is an answer that never comes.

#: The name of our way to write what an encoding lacks, for ``errors=``.
ERRORS = "labkit.legible"
#: How labkit's own signs are written where only ASCII can be.
_SIGNS = str.maketrans({"–": "-", "—": "-", "…": "...", "→": "->", "×": "x", "µ": "u", "│": "|",
                        "─": "-", "▶": ">", "Ⅱ": "=", "○": "o"})  # fmt: skip


def encodable(text: str) -> str:
    r"""Return a text with lone surrogates written out, as in ``'\ud800'``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_encodable(value: Any) -> Any:
    """Return a value as JSON has it, with every text in it encodable."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {all_encodable(key): all_encodable(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [all_encodable(inside) for inside in value]
    return value


def packer(original: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a packer of JSON messages that packs text with lone surrogates too, as encodable."""

    def pack(message: Any) -> bytes:
        try:
            packed = original(message)
            packed.decode("utf-8")  # some surrogates pass as bytes that are not UTF-8
        except UnicodeError:
            return original(all_encodable(message))
        return packed

    return pack


def _write_out(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_SIGNS)
    return lacking.encode("ascii", "backslashreplace").decode("ascii"), error.end


def sanitize_streams() -> None:
    """Make stdout and stderr write what their encoding lacks (``LC_ALL=C``), legibly, rather than
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


# -- what torch's C++ writes ----------------------------------------------------------------------

# A pattern that fits no more turns nothing off: what it should have hidden is shown. Tests on real
# ranks make torch say each of these (``tests/ranks/test_faults.py``).

#: What a rank raises because another one has gone, or because its connections were shut: gloo,
#: NCCL and the store.
CONSEQUENCE = re.compile(
    r"Connection (closed|reset)|Broken pipe|Socket (closed|Timeout)|recvValue failed|"
    r"sendBytes failed|Failed to recv|Timed out waiting|Application timeout"
)

#: What ``init_process_group`` raises where there is a group already.
TWICE = "trying to initialize the default process group twice"

#: What torch's functions raise where there is no default group.
NO_GROUP = "Default process group has not been initialized"

#: What may be raised where a group is used that has ended.
OF_ENDED = re.compile(
    CONSEQUENCE.pattern
    + r"|This process group has ended|is not initialized in the world group map"
    + r"|is not registered, please create group|Could not resolve the process group"
    + r"|Invalid process group|not found in the list of process groups|_unshard_params_ctx"
)

#: What labkit makes of such an error.
BELONGS = "belongs to the process group that ended with"

#: A line of torch's own log: ``[rank1]:[E1121 14:36:05.7 ProcessGroupGloo.cpp:69] …``,
#: with the C++ stack that may follow.
LOG = re.compile(
    r"^(?:\[rank\d+\]:)?\[[EW]\d{4} .*\n?"
    r"(?:(?:Exception raised from|frame #\d+:|<omitting).*\n?)*",
    re.MULTILINE,
)

#: The C++ stack that follows a line of the log, without that line.
LOG_STACK = re.compile(r"(?<=\n)(?:(?:Exception raised from|frame #\d+:|<omitting).*\n?)+")

#: What begins the C++ stack in the message of an error.
STACKS = ("\nException raised from ", "\nC++ CapturedTraceback")
