"""Know whether this rank answers remote calls."""

from __future__ import annotations

import sys


def is_called() -> bool:
    """Tell whether an agent of RPC lives here, which runs what other processes ask for."""
    api = sys.modules.get("torch.distributed.rpc.api")
    is_set = getattr(api, "_is_current_rpc_agent_set", None)
    return bool(is_set is not None and is_set())
