"""Make DTensors forget groups that are gone.

What an operation on DTensors gives is remembered with the mesh of the tensors. Two meshes of the
same ranks are equal, whatever their groups: after a repair a result would have the mesh of before,
and its next collective fail ("Could not resolve the process group …"), or go to another group that
has the name by now.
"""

from __future__ import annotations

import sys

from torch import _C


def forget_meshes() -> None:
    """Clear what this thread remembers of operations on DTensors, if it has had any."""
    api = sys.modules.get("torch.distributed.tensor._api")
    if api is None:
        return
    dispatcher = getattr(api.DTensor, "_op_dispatcher", None)
    propagate = getattr(dispatcher, "sharding_propagator", None)
    remembered = getattr(propagate, "propagate_op_sharding", None)
    for clear in (
        getattr(remembered, "cache_clear", None),
        getattr(_C, "_clear_DTensor_sharding_propagator_cache", None),
    ):
        if clear is not None:
            clear()
