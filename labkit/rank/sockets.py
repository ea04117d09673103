"""Free a rank that is blocked in a collective: end its connections with the other ranks."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from typing import Any

from ..connections import list_connections


def shut(pairs: Collection[list[list[Any]]]) -> int:
    """Shut down the connections with these (own, other) addresses; return how many there were.

    ``shutdown`` reaches the threads that wait on a socket; the descriptor stays open, since it
    is theirs to close.
    """
    count = 0
    for fd, own, other in list_connections():
        if [own, other] not in pairs:
            continue
        try:
            with socket.socket(fileno=os.dup(fd)) as twin:
                twin.shutdown(socket.SHUT_RDWR)
            count += 1
        except OSError:  # closed in the meantime
            continue
    return count
