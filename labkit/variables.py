"""Read the environment variables that hold numbers: one reader, one sentence for what is wrong.

An empty variable counts as one that is not set, as OpenMP and most programs take it: ``NAME= cmd``
is how a shell takes a setting back for one command.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping

from .errors import UsageError

#: What replaces the number of ranks of a notebook; for how long a deadlock may be suspected; how
#: many threads OpenMP gives to an operation.
RANKS, SUSPECT, THREADS = "LABKIT_RANKS", "LABKIT_SUSPECT_SECONDS", "OMP_NUM_THREADS"
#: ASCII digits: ``str.isdigit`` and ``int`` take more than any other program does.
_WHOLE = re.compile(r"\+?[0-9]+")
#: What torch, OpenMP and MPI keep in a C int.
_LARGEST = 2**31 - 1


def whole_number(name: str, environment: Mapping[str, str] = os.environ) -> int | None:
    """Read a variable that is a whole number from 1 up; None where it is not set.

    Raises
    ------
    UsageError
        If it is anything else.
    """
    text = environment.get(name, "").strip()
    if not text:
        return None
    number = _read(text)
    if not number:
        raise UsageError(
            f"The variable {name} must be a whole number from 1 up, got {environment[name]!r}."
        )
    return number


def seconds(name: str, environment: Mapping[str, str] = os.environ) -> float | None:
    """Read a variable that is a number of seconds, ``inf`` among them; None where it is not set.

    Raises
    ------
    UsageError
        If it is anything else.
    """
    text = environment.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0:
        raise UsageError(
            f"The variable {name} must be a number of seconds, got {environment[name]!r}."
        )
    return number


def threads(environment: Mapping[str, str] = os.environ) -> int | None:
    """Read how many threads OMP_NUM_THREADS gives to an operation; None where it is not set.

    OpenMP allows a list, one number per nested level, with blanks around each (OpenMP 5.2, section
    21.1.2). An operation of torch's is not nested: its number is the first.

    Raises
    ------
    UsageError
        If it is anything else.
    """
    text = environment.get(THREADS, "").strip()
    if not text:
        return None
    numbers = [_read(part.strip()) for part in text.split(",")]
    if not all(numbers):
        raise UsageError(
            f"The variable {THREADS} must be a number of threads from 1 up, or a list of them as "
            f"in 4,2; got {environment[THREADS]!r}."
        )
    return numbers[0]


def place(name: str, environment: Mapping[str, str] = os.environ) -> int | None:
    """Read a variable that another program sets to a number from 0 up, such as SLURM_PROCID.

    None where it is not set, or is no such number: then it says nothing.
    """
    return _read(environment.get(name, "").strip())


def _read(text: str) -> int | None:
    number = int(text) if _WHOLE.fullmatch(text) and len(text) < 20 else None
    return number if number is not None and number <= _LARGEST else None
