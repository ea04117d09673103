"""Let a store that is served at an address of the loopback interface listen there alone.

torch's ``TCPStore`` listens at every interface, whatever its address; but it takes a socket that
listens already.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.distributed as dist

_stock: Callable[..., None] | None = None


def install() -> None:
    """Begin to do so, in this process."""
    global _stock
    if _stock is None:
        _stock = dist.TCPStore.__init__
        dist.TCPStore.__init__ = tcp_store  # type: ignore[method-assign]


def tcp_store(self: dist.TCPStore, host_name: str, port: int, *args: Any, **named: Any) -> None:
    """Do what ``TCPStore(...)`` does."""
    assert _stock is not None
    if is_server(args, named) and len(args) < 6 and named.get("master_listen_fd") is None:
        with contextlib.suppress(OSError):  # torch has the words for a port that is taken
            listener = socket.create_server((_loopback(host_name), port), backlog=512)
            port = listener.getsockname()[1]
            named["master_listen_fd"] = listener.detach()
    _stock(self, host_name, port, *args, **named)


def is_server(args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Tell whether a ``TCPStore`` with these arguments, after host and port, serves a store."""
    return bool(named.get("is_master", len(args) > 1 and args[1]))


def _loopback(host: str) -> str:
    """Return the address of a name of the loopback interface; OSError if it is none."""
    if host == "localhost" or host.startswith("127."):
        return "127.0.0.1" if host == "localhost" else host
    raise OSError
