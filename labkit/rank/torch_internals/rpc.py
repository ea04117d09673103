"""Know whether this rank answers remote calls, and let it answer this user's processes only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .. import guarded

#: What starts an agent, and the settings that say by which ways it is reached.
START, OPTIONS, WAYS = "_set_and_start_rpc_agent", "TensorPipeRpcBackendOptions", "_transports"
#: By TCP alone. Within a host an agent listens by a Unix socket too, which has no file and so no
#: permissions, and stops listening when somebody is refused there.
TCP = ("uv",)
#: torch's own functions, which ours call
stock: dict[str, Callable[..., None]] = {}


def install() -> None:
    """Begin to let this user's processes alone call an agent; once, before one is made."""
    api = sys.modules.get("torch.distributed.rpc.api")
    options = getattr(sys.modules.get("torch.distributed.rpc.options"), OPTIONS, None)
    if not stock and api is not None and options is not None:
        stock["start"], stock["options"] = getattr(api, START), options.__init__
        setattr(api, START, start_agent)
        options.__init__ = choose


def start_agent(agent: Any) -> None:
    """Do what torch's function does, which meets the other ranks: they tell their addresses."""
    guarded.call(lambda: stock["start"](agent))


def choose(self: Any, **named: Any) -> None:
    """Make an agent's settings, as torch does but for the ways by which it is reached."""
    if guarded.is_there() and named.get(WAYS) is None:
        named[WAYS] = list(TCP)
    stock["options"](self, **named)


def is_called() -> bool:
    """Tell whether an agent of RPC lives here, which runs what other processes ask for."""
    api = sys.modules.get("torch.distributed.rpc.api")
    if api is None:
        return False
    is_set = getattr(api, "_is_current_rpc_agent_set", None)
    return is_set is None or bool(is_set())  # where torch hides it, nobody can tell
