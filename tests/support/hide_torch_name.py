"""Change torch as a later version might: rename what labkit knows by its private name.

Imported by the warm process before anything of ``labkit.rank``, it renames what the variable
``LABKIT_TEST_HIDE`` lists ("ProcessGroup.send _world.pg_map"). Torch's own functions call it by
the new name, so that torch itself works as before.
"""

from __future__ import annotations

import os
from types import FunctionType
from typing import Any

import torch
from torch import _tensor_str
from torch.distributed import distributed_c10d as c10d

VARIABLE = "LABKIT_TEST_HIDE"
OWNERS: dict[str, Any] = {
    "ProcessGroup": torch._C._distributed_c10d.ProcessGroup,
    "Work": torch._C._distributed_c10d.Work,
    "_world": type(c10d._world),
    "_distributed_c10d": torch._C._distributed_c10d,
    "autograd": torch.autograd,
    "loss": torch.nn.modules.loss,
    "_tensor_str": _tensor_str,
}


def rename(name: str) -> None:
    """Give ``Owner.attribute`` another name, also in the functions that call it."""
    owner, _, attribute = name.partition(".")
    own, new = OWNERS[owner], f"renamed_{attribute}"
    setattr(own, new, vars(own)[attribute])  # as it stands there: bound to an object later
    delattr(own, attribute)
    for function in [*vars(c10d).values(), *vars(_tensor_str).values()]:
        while isinstance(function, FunctionType):
            code = function.__code__
            names = tuple(new if n == attribute else n for n in code.co_names)
            function.__code__ = code.replace(co_names=names)
            function = getattr(function, "__wrapped__", None)


for hidden in os.environ.get(VARIABLE, "").split():
    rename(hidden)
