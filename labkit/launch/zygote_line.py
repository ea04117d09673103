"""Ask the zygote of this process to fork what would else have to import torch first."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import times
from ..guard import trust
from ..wire import forked
from ..wire.forked import ForkedProcess
from . import surroundings

_log = logging.getLogger(__name__)

#: Names the folder of the zygote to the processes that may ask it.
VARIABLE = "LABKIT_ZYGOTE"
#: The names of its socket in there, and of the file that says that all is imported.
SOCKET, READY = "zygote", "ready"
#: What it forks: the warm process of a lab, or what owns one run of torchrun.
WARM, TORCHRUN = "warm", "torchrun"
#: How the log says that it has forked nothing.
REFUSED = "the zygote has refused: "
#: Variables of a zygote: a library that starts threads when it is imported makes forks unsafe.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def ask(
    kind: str, argv: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
) -> ForkedProcess | None:
    """Ask the zygote of this process for another one; None if there is none, or not for us.

    Parameters
    ----------
    kind
        What is to be forked: ``WARM`` or ``TORCHRUN``.
    argv
        What it is started with, but for the first number.
    environment
        Its variables.
    files
        Its end of the line to its owner, and its log.

    Raises
    ------
    TimeoutError
        If the zygote is there and does not answer: it may still do what was asked for.
    """
    folder = os.environ.get(VARIABLE, "")
    if not folder or trust.why_not(folder):
        return None
    request = {
        "kind": kind,
        "argv": list(argv),
        "environment": dict(environment),
        "surroundings": surroundings.describe(),
        "settings": surroundings.describe_settings(),
    }
    try:
        is_ready = Path(folder, READY).exists()
        seconds = times.ZYGOTE_ANSWER.seconds() if is_ready else times.ZYGOTE_IMPORTED
        return forked.ask(str(Path(folder) / SOCKET), request, files, seconds)
    except forked.Refused as refusal:
        _log.info("%s%s", REFUSED, refusal)
    except TimeoutError:
        _log.info("the zygote does not answer")
        raise
    except (OSError, EOFError) as error:  # it is not there, or not ready
        _log.debug("no zygote: %s", error)
    return None
