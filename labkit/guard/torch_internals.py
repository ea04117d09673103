"""Let torch's store, gloo and RPC talk to processes of this user only, on loopback where asked.

Each of them listens at a port of this host, and lets everybody in who connects. So what listens
is made in a guarded thread (``guarded``): the server of a ``TCPStore``, gloo's devices, the
transports of RPC's agent. Whatever waits for other ranks while it is made stays in the thread
that calls it, where the deadlock watch sees it and what ends it is as before.

The other way round, a process that connects to a store looks who serves it: another user may have
been faster to take the port that the environment names.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from . import guarded, peers

#: What starts an agent of RPC, and the settings that say by which ways it is reached.
START, OPTIONS, WAYS = "_set_and_start_rpc_agent", "TensorPipeRpcBackendOptions", "_transports"
#: By TCP alone. Within a host an agent listens by a Unix socket too, which has no file and so no
#: permissions, and stops listening when somebody is refused there.
TCP = ("uv",)
#: What this rests on, as ``labkit.rank.torch_internals.names`` lists its own.
NAMES = (
    "ProcessGroupGloo.create_default_device",
    "ProcessGroupGloo.create_device",
    "ProcessGroupGloo._Options._devices",
    "ProcessGroupGloo._Options._threads",
    "ProcessGroupGloo._Options._timeout",
    f"api.{START}",
    f"options.{OPTIONS}",
)
#: torch's own functions, which ours call
original: dict[str, Callable[..., Any]] = {}
_Gloo: Any = getattr(c10d, "ProcessGroupGloo", None)
#: Arguments of TCPStore behind the host and the port.
_STORE = (
    "world_size",
    "is_master",
    "timeout",
    "wait_for_workers",
    "multi_tenant",
    "master_listen_fd",
    "use_libuv",
)
#: Where gloo is told which interfaces to use.
_INTERFACES = "GLOO_SOCKET_IFNAME"


def install(list_connections: Callable[[], Iterable[Sequence[Any]]]) -> None:
    """Begin to do so; once, before the first store and the first group are made.

    Parameters
    ----------
    list_connections
        Lists this process's TCP connections: file, own address, the other end's address.
    """
    if original:
        return
    original["connections"] = list_connections
    original["store"], original["gloo"] = dist.TCPStore.__init__, _Gloo.__init__
    dist.TCPStore.__init__ = tcp_store  # type: ignore[method-assign]
    _Gloo.__init__ = process_group_gloo
    api = sys.modules.get("torch.distributed.rpc.api")
    options = getattr(sys.modules.get("torch.distributed.rpc.options"), OPTIONS, None)
    if api is not None and options is not None:
        original["agent"], original["options"] = getattr(api, START), options.__init__
        setattr(api, START, start_agent)
        options.__init__ = choose_ways


# -- stores -------------------------------------------------------------------------------------


def tcp_store(self: dist.TCPStore, host_name: str, port: int, *args: Any, **named: Any) -> None:
    """Do what ``TCPStore(...)`` does; the server lets this user's processes in."""
    init = original["store"]
    given = dict(zip(_STORE, args, strict=False)) | named
    if not given.get("is_master"):
        init(self, host_name, port, *args, **named)
        _check_server(host_name, port)
        return
    if not guarded.is_there():
        init(self, host_name, port, *args, **named)
        return
    port = _listen(host_name, port, given)
    if not given.get("wait_for_workers", True):
        guarded.call(lambda: init(self, host_name, port, **given))
        return
    # The server first, which waits for nobody; then torch finds it, as a second tenant, and waits
    # for the others here.
    server = dist.TCPStore.__new__(dist.TCPStore)
    own = {**given, "wait_for_workers": False, "multi_tenant": True}
    guarded.call(lambda: init(server, host_name, port, **own))
    given = {**given, "multi_tenant": True, "master_listen_fd": None}
    init(self, host_name, server.port, **given)


def _listen(host: str, port: int, given: dict[str, Any]) -> int:
    """Listen for a store at an address of the loopback interface alone: torch does at every
    interface. Returns the port; it is torch's to do for another address, and where the port is
    taken, for torch has the words for that.
    """
    if (host == "localhost" or host.startswith("127.")) and given.get("master_listen_fd") is None:
        address = "127.0.0.1" if host == "localhost" else host
        with suppress(OSError):
            listener = socket.create_server((address, port), backlog=512)
            port = listener.getsockname()[1]
            given["master_listen_fd"] = listener.detach()
    return port


def _check_server(host: str, port: int) -> None:
    """Make sure that the store is not one of another user of this host.

    Raises
    ------
    DistNetworkError
        If it is.
    """
    for _, own, other in original["connections"]():
        if other[1] == port:
            user = peers.find_user(other, own)
            # Root's is also what nobody has accepted yet, such as a look for the server.
            if user not in (None, 0, os.geteuid()):
                raise dist.DistNetworkError(
                    f"The store at {host}, port {port}, is served by a process of another user "
                    f"(number {user}), so this rank left it. Choose another MASTER_PORT."
                )


def install_loopback() -> None:
    """Make stores that are served at an address of the loopback interface listen there alone, in
    this process, which has no guard."""
    if not original:
        original["store"] = dist.TCPStore.__init__
        dist.TCPStore.__init__ = loopback_store  # type: ignore[method-assign]


def loopback_store(
    self: dist.TCPStore, host_name: str, port: int, *args: Any, **named: Any
) -> None:
    """Do what ``TCPStore(...)`` does."""
    if is_server(args, named) and len(args) < 6:
        port = _listen(host_name, port, named)
    original["store"](self, host_name, port, *args, **named)


def is_server(args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Return whether a ``TCPStore`` with these arguments, after host and port, serves a store."""
    return bool(named.get("is_master", len(args) > 1 and args[1]))


# -- gloo and RPC -------------------------------------------------------------------------------


def process_group_gloo(
    self: Any, store: dist.Store, rank: int, size: int, *args: Any, **named: Any
) -> None:
    """Do what ``ProcessGroupGloo(...)`` does; it lets this user's processes in."""
    init = original["gloo"]
    options = _Gloo._Options()
    if "options" in named or isinstance(next(iter(args), None), type(options)):
        init(self, store, rank, size, *args, **named)  # they hold devices already
        return
    if not guarded.is_there():
        init(self, store, rank, size, *args, **named)
        return
    given = dict(zip(("timeout", "enable_reconfigure"), args, strict=False)) | named
    options._devices = guarded.call(_make_devices)
    options._threads = 2 * len(options._devices)
    if isinstance(limit := given.pop("timeout", None), timedelta):
        options._timeout = limit
    for name, value in given.items():
        setattr(options, name, value)
    init(self, store, rank, size, options)


def _make_devices() -> list[Any]:
    """Make gloo's devices, as torch does where it is given none."""
    interfaces = os.environ.get(_INTERFACES)
    if not interfaces:
        return [_Gloo.create_default_device()]
    return [_Gloo.create_device(interface=name) for name in interfaces.split(",")]


def start_agent(agent: Any) -> None:
    """Do what torch's function does, which meets the other ranks: they tell their addresses."""
    guarded.call(lambda: original["agent"](agent))


def choose_ways(self: Any, **named: Any) -> None:
    """Make an agent's settings, as torch does but for the ways by which it is reached."""
    if guarded.is_there() and named.get(WAYS) is None:
        named[WAYS] = list(TCP)
    original["options"](self, **named)
