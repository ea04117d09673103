"""Write a file as a slow disk does: half of it, and the rest a good while later."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from typing import Any

_pause = time.sleep  #: as it is where an answer's own sleep returns at once


def slow_save(save: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Return a ``torch.save`` that takes so long, in the middle of the file.

    A rank that waits until there is a file finds half of one. Into what is no path it writes at
    once.

    Parameters
    ----------
    save
        The real one.
    """

    def slow(state: Any, target: Any, *args: Any, **options: Any) -> None:
        if not isinstance(target, str | os.PathLike):
            save(state, target, *args, **options)
            return
        whole = io.BytesIO()
        save(state, whole, *args, **options)
        data = whole.getvalue()
        with open(target, "wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            _pause(seconds)
            file.write(data[len(data) // 2 :])

    return slow
