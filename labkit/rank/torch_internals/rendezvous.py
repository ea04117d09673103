"""Let ``init_process_group`` by ``env://`` and ``tcp://`` meet again at a port it had before.

Rank 0 serves the store at that port, and torch ends the server with the last object that knows the
group: a DDP model in a variable keeps it for the next group, with the addresses of the last one in
it. And a rank that is early connects to the server that rank 0 is still about to leave. So here
the server ends when the group is destroyed, and a rank waits for that end, in a way that can be
interrupted, before it looks for the next one.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlparse

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ...base import times
from . import groups, names

#: What tells that torchrun's agent serves the store; it stays from group to group.
AGENT = "TORCHELASTIC_USE_AGENT_STORE"

#: What init_process_group yields: the store, this rank's number and how many there are.
Found = tuple[dist.Store, int, int]

_original: Callable[..., Generator[Found, None, None]] | None = None
#: Rank 0: the server of the group that it is in, or tries to form.
_server: dist.Store | None = None
#: The others: a connection with the last server, which ends with it, and its address.
_line: socket.socket | None = None
_address: tuple[str, int] | None = None
#: The search that this process is in.
_search: _Search | None = None


def install() -> None:
    """Begin to do so; call it before the first process group is formed."""
    global _original
    if _original is not None or not names.is_on("meeting again"):
        return
    _original = c10d.rendezvous
    forget_all = c10d._unregister_all_process_groups

    def unregister_all_process_groups() -> None:
        forget_all()
        end()

    c10d.rendezvous = rendezvous
    c10d._unregister_all_process_groups = unregister_all_process_groups


def end() -> None:
    """End the server on this rank, if there is one: its group is no more."""
    global _server
    _server = None


def cancel() -> bool:
    """End a search for a server with an error; return whether there was one."""
    search = _search
    if search is not None:
        search.end()
    return search is not None


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **named: Any) -> Iterator[Found]:
    """Do what torch's function of this name does for a group (a generator, as that one is)."""
    try:
        yield from _rendezvous(url, rank, world_size, **named)
    except GeneratorExit:
        raise
    except BaseException:
        # Torch has counted this group already, by which it names the next one; ranks on which
        # none has failed would give that one another name, and never meet.
        groups.forget_made()
        raise


def _rendezvous(url: str, rank: int, world_size: int, **named: Any) -> Iterator[Found]:
    global _server, _line, _address
    assert _original is not None
    place = _find_place(url, rank)
    if place is None or os.environ.get(AGENT) == str(True):
        yield from _original(url, rank, world_size, **named)
        return
    address, number = place
    limit = named.get("timeout", c10d.default_pg_timeout)
    if number == 0:
        end()  # of a group that could not be formed
    else:
        old, _line = (_line if _address == address else None), None
        _address = address
        try:
            limit = _find_server(address, old, limit)
        except BaseException:  # interrupted: it may be there still
            _line = old
            raise
    found = _original(url, rank, world_size, **{**named, "timeout": limit})
    store, number, size = next(found)
    if isinstance(store, dist.TCPStore):
        if number == 0:
            _server = store
            found.close()  # its frame holds the server too
            store = dist.TCPStore(*address, size, False, limit, wait_for_workers=False)
        else:
            # Only now: what the search has found may be the last server, about to close.
            _line = connect(address)
    yield store, number, size
    yield from found


def _find_place(url: str, rank: int) -> tuple[tuple[str, int], int] | None:
    """Return the server's host and port, and this rank's number; None if torch will complain."""
    with contextlib.suppress(KeyError, ValueError):
        parsed = urlparse(url)
        query = dict(pair.split("=") for pair in parsed.query.split("&") if pair)
        if parsed.scheme == "env":
            given = os.environ
            number = rank if rank >= 0 else int(query.get("rank") or given["RANK"])
            return (given["MASTER_ADDR"], int(given["MASTER_PORT"])), number
        if parsed.scheme == "tcp" and parsed.hostname and parsed.port:
            number = rank if rank >= 0 else int(query["rank"])
            return (parsed.hostname, parsed.port), number
    return None


def _find_server(
    address: tuple[str, int], old: socket.socket | None, limit: timedelta
) -> timedelta:
    """Wait until the server of the last group has ended, and the next one is there.

    Returns
    -------
    timedelta
        What is left of the limit.
    """
    global _search
    seconds = limit.total_seconds()
    needs_next = seconds >= times.STORE_SEARCHED
    if not needs_next and old is None:
        return limit
    began = time.monotonic()
    _search = search = _Search(address, old, needs_next=needs_next)
    try:
        search.done.acquire(timeout=max(0.0, seconds - min(times.STORE_ERROR, seconds / 2)))
    finally:
        _search = None
        search.stopped = True
    if search.failed:
        raise dist.DistNetworkError("Connection closed: labkit ended the search for the store.")
    left = max(times.STORE_ERROR / 2, seconds - (time.monotonic() - began))
    return timedelta(seconds=left)


class _Search:
    """Look for a server in a thread: the main one can wait for it, and be interrupted.

    ``done`` is free when the search has come to its end.
    """

    def __init__(
        self, address: tuple[str, int], old: socket.socket | None, *, needs_next: bool
    ) -> None:
        self.address = address
        self.old = old
        self.needs_next = needs_next
        self.done = threading.Lock()
        self.done.acquire()
        self.found: socket.socket | None = None
        self.failed = self.stopped = False
        threading.Thread(target=self._run, name="labkit store", daemon=True).start()

    def end(self) -> None:
        self.failed = self.stopped = True

    def _run(self) -> None:
        try:
            if self.old is not None:
                while not (self.stopped or _has_ended(self.old, times.STORE_LOOK)):
                    pass
                if not self.stopped:
                    self.old.close()
            while self.needs_next and not self.stopped and self.found is None:
                self.found = connect(self.address)
                if self.found is None:
                    time.sleep(times.STORE_LOOK)
        finally:
            self.done.release()


def _has_ended(line: socket.socket, seconds: float) -> bool:
    """Return whether the other end of a connection has gone; wait for it for some seconds."""
    try:
        readable, _, _ = select.select([line], [], [], seconds)
        return bool(readable) and not line.recv(1)
    except (OSError, ValueError):  # closed
        return True


def connect(address: tuple[str, int]) -> socket.socket | None:
    """Connect with a server, None if nobody listens."""
    with contextlib.suppress(OSError):
        line = socket.create_connection(address, timeout=times.STORE_CONNECTED.seconds())
        if line.getsockname() != line.getpeername():  # the system may connect a port with itself
            return line
        line.close()
    return None
