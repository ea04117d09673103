"""Note the calls in which torch issues collectives in C++: a backward, and a forward of DDP.

A rank without a GPU waits within such a call, and its frames say where. What was given to a GPU is
waited for later, at the end of the cell or where somebody looks at a value: then these notes tell
which line it came from. They are made on ranks with a GPU only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

from ..torch_internals import profiling
from . import call_details
from .call_details import Place

#: DDP's forward begins with a broadcast of the buffers.
FORWARD = "DistributedDataParallel.forward"


@dataclass
class Call:
    """A call that was made, or is being made; nanoseconds since 1970."""

    name: str  #: "backward"
    place: Place | None
    start: int
    stop: int | None = None


#: The newest calls, oldest first.
made: deque[Call] = deque(maxlen=call_details.KEPT)


def install() -> None:
    """Begin to note; call it once."""
    profiling.wrap_backwards(lambda function: noting("backward", function))
    parallel = torch.nn.parallel.DistributedDataParallel
    parallel.forward = noting(FORWARD, parallel.forward)  # type: ignore[method-assign]


def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does what ``function`` does, and notes when and where."""

    @wraps(function)
    def wrapper(*args: Any, **named: Any) -> Any:  # a name that nobody takes for the call
        call = Call(name, call_details.find_place(), time.time_ns())
        made.append(call)
        try:
            return function(*args, **named)
        finally:
            call.stop = time.time_ns()

    return wrapper


def find(moment: int) -> Call | None:
    """Return the innermost call that was being made at a moment (ns since 1970), if any."""
    for call in reversed(list(made)):
        if call.start <= moment and (call.stop is None or moment <= call.stop):
            return call
    return None
