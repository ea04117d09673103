"""Free a rank that is blocked: end its connections with the other ranks, or send to it.

Each way reaches other waits: what waits on a connection ends with it, NCCL is aborted, a store's
server and the connecting of a group are given up where they are waited for.

A receive from any rank is tied to no connection, so the end of them all does not reach it; one
byte does. And gloo does not read a connection any more, not even its end, where a message has come
for a receive whose handle was dropped; a time limit that runs out closes that one too.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection
from datetime import timedelta

import torch

from ..base import times
from ..wire.connections import Pair, borrow, list_connections
from .observe import p2p_record
from .torch_internals import connecting, groups, rendezvous


def free(pairs: Collection[Pair]) -> int:
    """Free this rank from whatever it waits for, as far as that is with the connections of these
    (own, other) addresses or with none; return how many waits there may have been."""
    return (
        close_connections(pairs)
        + expire()
        + groups.abort()
        + rendezvous.cancel()
        + connecting.cancel()
    )


def close_connections(pairs: Collection[Pair]) -> int:
    """Shut down the connections with these (own, other) addresses; return how many there were.

    ``shutdown`` reaches the threads that wait on a socket; the descriptor stays open, since it
    is theirs to close.
    """
    count = 0
    for fd, own, other in list_connections():
        # It may have been closed in the meantime.
        with contextlib.suppress(OSError):
            if (own, other) in pairs:
                with borrow(fd) as twin:
                    twin.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def unblock_receive(group: str, peer: int, tag: int) -> int:
    """Send one byte to a rank (its number in the group) that receives from any; return how many
    groups of that name there were."""
    found = [g for g in groups.groups() if g.group_name == group]
    send = p2p_record.original.get("send")
    if send is None:  # this torch hides it: no receive is known of either
        return 0
    for g in found:
        send(g, [torch.zeros(1, dtype=torch.uint8)], peer, tag)
    return len(found)


def expire() -> int:
    """Make waits fail in the groups in which the handle of a receive was dropped; return in how
    many.

    Gloo closes all connections of a group when the time limit of one receive in it runs out.
    """
    issue, wait = p2p_record.original.get("recv"), p2p_record.original.get("wait")
    count = 0
    for group, lost in list(p2p_record.dropped.items()):
        receives = [(peer, tag) for kind, peer, tag, _ in lost if kind != "send"]
        if not receives or issue is None or wait is None:
            continue
        peer, tag = receives[-1]
        if peer < 0:  # it takes from any: every connection will do
            peer = (group.rank() + 1) % group.size()
        with contextlib.suppress(RuntimeError):  # its time is up, or the connection has ended
            wait(
                issue(group, [torch.zeros(1, dtype=torch.uint8)], peer, tag),
                timedelta(seconds=times.RECEIVE_FAILS),
            )
        count += 1
    return count
