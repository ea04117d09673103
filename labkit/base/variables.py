"""Read the environment variables that hold numbers: one reader, one sentence for what is wrong.

An empty variable counts as one that is not set, as OpenMP and most programs take it: ``NAME= cmd``
is how a shell takes a setting back for one command. What is anything else than it may be is a
UsageError, but for :func:`place`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from .errors import UsageError

T = TypeVar("T")

#: What replaces the number of ranks of a notebook; the most that it may start (set by whoever runs
#: a JupyterHub); for how long a deadlock may be suspected; how
#: many threads OpenMP gives to an operation.
RANKS, MAX_RANKS = "LABKIT_RANKS", "LABKIT_MAX_RANKS"
SUSPECT, THREADS = "LABKIT_SUSPECT_SECONDS", "OMP_NUM_THREADS"
#: ASCII digits: ``str.isdigit`` and ``int`` take more than any other program does.
_WHOLE = re.compile(r"\+?[0-9]+")
#: What torch, OpenMP and MPI keep in a C int.
_LARGEST = 2**31 - 1


def whole_number(name: str, environment: Mapping[str, str] = os.environ) -> int | None:
    """Read a variable that is a whole number from 1 up; None where it is not set."""
    return read(name, _positive, "a whole number from 1 up, got", environment)


def seconds(name: str, environment: Mapping[str, str] = os.environ) -> float | None:
    """Read a variable that is a number of seconds, ``inf`` among them; None where it is not set."""
    return read(name, _duration, "a number of seconds, got", environment)


def threads(environment: Mapping[str, str] = os.environ) -> int | None:
    """Read how many threads OMP_NUM_THREADS gives to an operation; None where it is not set.

    OpenMP allows a list, one number per nested level, with blanks around each (OpenMP 5.2, section
    21.1.2). An operation of torch's is not nested: its number is the first.
    """
    allowed = "a number of threads from 1 up, or a list of them as in 4,2; got"
    found = read(THREADS, _list, allowed, environment)
    return found[0] if found else None


def read(
    name: str, convert: Callable[[str], T], allowed: str, environment: Mapping[str, str]
) -> T | None:
    """Read a variable; None where it is not set.

    Parameters
    ----------
    convert
        Makes a value of its text, or raises ValueError.
    allowed
        What it may be, in words, up to "got".
    """
    given = environment.get(name, "")
    if not given.strip():
        return None
    try:
        return convert(given)
    except ValueError:
        raise UsageError(f"The variable {name} must be {allowed} {given!r}.") from None


def place(name: str, environment: Mapping[str, str] = os.environ) -> int | None:
    """Read a variable that another program sets to a number from 0 up, such as SLURM_PROCID.

    None where it is not set, or is no such number: then it says nothing.
    """
    try:
        return _number(environment.get(name, ""))
    except ValueError:
        return None


def _number(text: str) -> int:
    """Read a whole number that fits a C int."""
    text = text.strip()
    if not _WHOLE.fullmatch(text) or len(text) > 20 or int(text) > _LARGEST:
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> int:
    number = _number(text)
    if number < 1:
        raise ValueError(text)
    return number


def _list(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def _duration(text: str) -> float:
    number = float(text)
    if not number >= 0:  # it is no number either
        raise ValueError(text)
    return number
