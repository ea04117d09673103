"""Let torch's C++ read again from which level on it logs, which it does when it is imported."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

#: The variable that says the level.
VARIABLE = "TORCH_CPP_LOG_LEVEL"
#: ``c10::initLogging()``, as its library calls it. It leaves the level as it is without a variable.
_SYMBOL = "_ZN3c1011initLoggingEv"


def _function() -> Any:
    torch = sys.modules.get("torch")
    if torch is None or torch.__file__ is None:
        return None
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    except OSError:
        return None
    return getattr(library, _SYMBOL, None)


def can_be_read_again() -> bool:
    """Tell whether this process can do that: torch is imported, and has it."""
    return _function() is not None


def read_again() -> None:
    """Take over the level that the variable says now."""
    if (function := _function()) is not None:
        function.restype = None
        function()
