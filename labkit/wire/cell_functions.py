"""Let the processes that a cell starts have what cells have defined.

``mp.spawn`` and ``mp.Process`` send the name of a function and of its module, which the new process
imports. Cells have no file: their functions and classes are sent whole.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any


def send_whole() -> None:
    """Begin to do so in this process, and in those that it starts so."""
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.reducer_override = _reduce  # type: ignore[method-assign]


def load(data: bytes) -> Any:
    """Load what was sent, in the new process."""
    import cloudpickle

    send_whole()
    return cloudpickle.loads(data)


def _reduce(pickler: object, value: Any) -> Any:
    import cloudpickle

    is_definition = isinstance(value, FunctionType | type)
    if is_definition and value.__module__ == "__main__" and not _has_file():
        return load, (cloudpickle.dumps(value),)
    return NotImplemented


def _has_file() -> bool:
    """Tell whether this process runs a script, which others can import."""
    return getattr(sys.modules["__main__"], "__file__", None) is not None
