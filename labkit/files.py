"""Write files so that a name never stands for half of one."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, making its folder; an older file stays until all is written.

    Raises
    ------
    OSError
        If that fails; nothing of the new file is left then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def reason(error: OSError) -> str:
    """Return what the system says was wrong, without the path: "No space left on device"."""
    return error.strerror or str(error)
