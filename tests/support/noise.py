"""Leave out of a text what differs between machines, or between runs."""

from __future__ import annotations

import re
import sysconfig
import tempfile

from .parts import ROOT

#: A line that torch's C++ logs, with or without the label of a rank before it:
#: "rank 0: [W1126 12:49:45.925421083 socket.cpp:207] [c10d] …".
LOGGED = re.compile(
    r"^(\x1b\[[\d;]*m|ranks? [\d, –]+|: |\s)*\[[WIEF]\d{4} [\d:.]+ [\w.]+:\d+\].*\n?", re.M
)
#: What differs -> what stands in its place.
NOISE = {
    re.escape(sysconfig.get_path("purelib")): "/site-packages",
    re.escape(str(ROOT)): "/course",
    rf"{re.escape(tempfile.gettempdir())}/[\w-]+": "/tmp/folder",
    r"\b0x[0-9a-f]+": "0x0",
    # Ports and open files; a rank's collectives count those of the cells and answers before, too.
    r"(\]:|\bport[:=] ?|\bfd=|\bcollective )\d+": r"\g<1>0",
    r"\[F\d{4} [\d:.]+": "[F0101 00:00:00.0",
}


def steady(text: str) -> str:
    """Return a text as it is on every machine and in every run."""
    for pattern, instead in NOISE.items():
        text = re.sub(pattern, instead, text)
    return text


def without_log(text: str) -> str:
    """Return a text without the lines that torch's C++ has logged."""
    return LOGGED.sub("", text)
