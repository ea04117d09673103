"""Know which methods of a process group are behind the functions of ``torch.distributed``.

Whatever a call is named and however it was imported, it ends in one of these methods: that is
where the deadlock watch learns whose collective it is, and where a check counts and forbids.
Torch renames them now and then; names that this torch does not have are passed over, and
``names.check`` says which function ends in none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import unwrap
from typing import Any

import torch
import torch.distributed as dist
from torch import _C

from .groups import ProcessGroup

#: Function of torch.distributed -> ProcessGroup's methods behind it and behind its tensor forms.
METHODS = {
    "all_reduce": ("allreduce", "allreduce_coalesced"),
    "broadcast": ("broadcast",),
    "reduce": ("reduce",),
    "all_gather": (
        "allgather",
        "_allgather_base",
        "allgather_coalesced",
        "allgather_into_tensor_coalesced",
        "all_gather_single",
        "all_gather_single_coalesced",
    ),
    "gather": ("gather", "gather_single", "gather_into_tensor"),
    "scatter": ("scatter",),
    "reduce_scatter": (
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_tensor_coalesced",
        "reduce_scatter_single",
        "reduce_scatter_single_coalesced",
    ),
    "all_to_all": ("alltoall", "alltoall_base", "all_to_all_single"),
    "barrier": ("barrier", "monitored_barrier"),
}
#: Tensor forms, and what each one is a form of: to forbid one is to forbid all of them.
FORMS = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    # names since torch 2.15
    "all_gather_single": "all_gather",
    "reduce_scatter_single": "reduce_scatter",
    "gather_single": "gather",
    "gather_into_tensor": "gather",
    "monitored_barrier": "barrier",
    "all_reduce_coalesced": "all_reduce",
}
#: The functions that a method for messages is called by.
MESSAGES = {
    "send": ("send", "isend"),
    "recv": ("recv", "irecv"),
    "recv_anysource": ("recv", "irecv"),
}
#: The same collectives as operators (``torch.distributed._functional_collectives``).
NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd")
OPERATORS = {
    "all_reduce": (
        "all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_",
    ),
    "broadcast": ("broadcast", "broadcast_"),
    "all_gather": (
        "all_gather_into_tensor", "all_gather_into_tensor_out", "all_gather_into_tensor_coalesced",
    ),
    "reduce_scatter": (
        "reduce_scatter_tensor", "reduce_scatter_tensor_out", "reduce_scatter_tensor_coalesced",
    ),
    "all_to_all": ("all_to_all_single",),
}  # fmt: skip

#: The files of the functions themselves and of what torch wraps around them.
FILES = frozenset(f.__code__.co_filename for f in (dist.all_reduce, unwrap(dist.all_reduce)))

_FAMILIES = {method: family for family, methods in METHODS.items() for method in methods}


def family(method: str) -> str:
    """Return the collective that a method of a process group belongs to, "" if to none."""
    return _FAMILIES.get(method, "")


def plain_name(name: str) -> str:
    """Return the collective that the recorder's name stands for: "_allgather_base", "allreduce"."""
    return family(name.removeprefix("_")) or family(name) or FORMS.get(name, name)


def owners() -> list[Any]:
    """List the classes with these methods: a process group's, and its backends'."""
    backend = getattr(_C._distributed_c10d, "Backend", None)
    return [ProcessGroup] if backend is None else [ProcessGroup, backend]


def operators() -> Iterator[tuple[Any, str, str]]:
    """Yield each operator that this torch has: its namespace, its collective and its name."""
    for namespace in NAMESPACES:
        owner = getattr(torch.ops, namespace)
        for collective, names in OPERATORS.items():
            for name in names:
                if hasattr(owner, name):
                    yield owner, collective, name


def root_in(options: Any) -> Any:
    """Return the root (of the group) in the options of a broadcast; they may be the root itself."""
    return getattr(options, "rootRank", options)


def forbidden_families(forbids: tuple[str, ...]) -> frozenset[str]:
    """Return the collectives that are forbidden in every form by these functions' names."""
    names = {FORMS.get(name, name) for name in forbids}
    return frozenset(names & METHODS.keys())
