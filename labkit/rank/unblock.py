"""Free a rank that is blocked: end its connections with the other ranks, or send to it.

A receive from any rank is tied to no connection, so the end of them all does not reach it; one
byte does.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection

import torch

from ..wire.connections import Pair, list_connections
from .observe import p2p_record
from .torch_internals import groups


def shut(pairs: Collection[Pair]) -> int:
    """Shut down the connections with these (own, other) addresses; return how many there were.

    ``shutdown`` reaches the threads that wait on a socket; the descriptor stays open, since it
    is theirs to close.
    """
    count = 0
    for fd, own, other in list_connections():
        if (own, other) not in pairs:
            continue
        try:
            with socket.socket(fileno=os.dup(fd)) as twin:
                twin.shutdown(socket.SHUT_RDWR)
            count += 1
        except OSError:  # closed in the meantime
            continue
    return count


def wake(group: str, peer: int, tag: int) -> int:
    """Send one byte to a rank (its number in the group) that receives from any; return how many
    groups of that name there were."""
    found = [g for g in groups.groups() if g.group_name == group]
    send = p2p_record.stock.get("send")
    if send is None:  # this torch hides it: no receive is known of either
        return 0
    for g in found:
        send(g, [torch.zeros(1, dtype=torch.uint8)], peer, tag)
    return len(found)
