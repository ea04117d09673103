"""Know whether this rank answers remote calls."""

from __future__ import annotations

import sys


def is_called() -> bool:
    """Return whether an agent of RPC lives here, which runs what other processes ask for."""
    api = sys.modules.get("torch.distributed.rpc.api")
    if api is None:
        return False
    is_set = getattr(api, "_is_current_rpc_agent_set", None)
    return is_set is None or bool(is_set())  # where torch hides it, nobody can tell
