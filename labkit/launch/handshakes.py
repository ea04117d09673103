"""Know when sockets that a process has connected have met their other ends.

ZeroMQ connects in a thread of its own, and drops what is sent to an engine before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import zmq


class Handshakes:
    """Count the connections that some sockets begin, and wait until they are made.

    Parameters
    ----------
    connect
        What connects a socket with an address: ``connect(socket, url)``.
    """

    def __init__(self, connect: Callable[..., None]) -> None:
        self._connect = connect
        self._begun: dict[zmq.Socket, int] = {}

    def connect(self, socket: zmq.Socket, url: str, *arguments: Any, **named: Any) -> None:
        """Connect a socket, as the function does that was given."""
        socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)  # the same one each time
        self._begun[socket] = self._begun.get(socket, 0) + 1
        self._connect(socket, url, *arguments, **named)

    def wait(self, seconds: float) -> bool:
        """Wait until all connections are made, and watch them no longer; tell whether they are."""
        deadline = time.monotonic() + seconds
        waits = [self._wait(socket, count, deadline) for socket, count in self._begun.items()]
        self._begun.clear()
        return all(waits)

    def _wait(self, socket: zmq.Socket, count: int, deadline: float) -> bool:
        with socket.get_monitor_socket() as events:
            while count and events.poll(max(0, int(1000 * (deadline - time.monotonic())))):
                events.recv_multipart()
                count -= 1
            socket.disable_monitor()
        return not count
