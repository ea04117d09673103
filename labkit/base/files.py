"""Write files so that a name never stands for half of one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, making its folder; an older file stays until all is written.

    A link at ``path`` is replaced, not followed. The file is new under a name that nobody knows
    before, so that nobody can have laid a link there.

    Raises
    ------
    OSError
        If that fails; nothing of the new file is left then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(part, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def reason(error: OSError) -> str:
    """Return what the system says was wrong, without the path: "No space left on device"."""
    return error.strerror or str(error)
