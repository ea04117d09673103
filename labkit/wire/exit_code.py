"""Put into words how a process ended."""

from __future__ import annotations

import signal


def describe_exit(code: int | None) -> str:
    """Say how a process ended, after "ended with": ``signal 9 (SIGKILL)``, ``exit code 3``.

    ``code`` is negative for a signal, and None if nobody was there to see the end: its host went,
    or the connection to it.
    """
    if code is None:
        return "its host, or with the connection to it"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        return f"signal {-code} ({name})"
    return f"exit code {code}"
