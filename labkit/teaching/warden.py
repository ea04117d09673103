"""Run a command and end all its descendants with it, where there are no process namespaces.

``python -m labkit.teaching.warden PARENT COMMAND…`` ends when the command does, when its parent has
ended, or at SIGTERM.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType

from ..wire import processes


def main(parent: int, command: list[str]) -> int:
    """Run a command; return its exit code."""
    processes.end_with_parent(parent)
    processes.inherit_orphans()

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        return subprocess.call(command, close_fds=False)  # what is told goes to an open file
    finally:
        processes.end_descendants()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
