"""Know which of torch's private names labkit rests on, and for what: ``check`` looks for them.

The other modules here use these names. A feature that misses one is off and says so in a
sentence; everything else goes on.
"""

from __future__ import annotations

import os
from functools import cache, reduce
from inspect import unwrap
from types import CodeType
from typing import Any

import torch

from ...guard import torch_internals as guard
from ...wire.state import Feature, Missing, find_missing, is_defined
from . import collectives, frames, profiling, recorder

#: Functions of torch.distributed that an exercise can limit and forbid.
COUNTED = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "isend",
    "irecv",
)
#: Names of other kinds than attributes: the methods of ``ProcessGroup`` that these functions end
#: in; a file or folder of torch.
METHODS, FILE = "ProcessGroup's methods", "torch/{}"
#: NCCL's own flight recorder, which only a torch that is built with NCCL has.
NCCL = "_distributed_c10d._dump_nccl_trace"

FEATURES = {
    "deadlocks": Feature(
        ("Work.wait", "ProcessGroup._set_group_name", "_world.pg_group_ranks"),
        "deadlocks are not named",
    ),
    "collectives": Feature(
        ("_distributed_c10d._dump_fr_trace",), "deadlocks in collectives are not named"
    ),
    "collectives of NCCL": Feature((NCCL,), "deadlocks in NCCL's collectives are not named"),
    "firsts": Feature(
        ("ProcessGroup._get_sequence_number_for_group",),
        "deadlocks with a rank that has made no collective are not named",
    ),
    "messages": Feature(
        ("ProcessGroup.send", "ProcessGroup.recv", "ProcessGroup.recv_anysource"),
        "deadlocks of sends and receives are not named",
    ),
    "barriers": Feature(
        ("ProcessGroup.monitored_barrier",), "deadlocks in monitored_barrier are not named"
    ),
    "meetings": Feature(
        ("_world.group_count", "distributed_c10d._store_based_barrier"),
        "deadlocks in init_process_group and new_group are not named",
    ),
    "inside": Feature(
        tuple(map(FILE.format, frames.BLIND_PRIVATE)),
        "some deadlocks inside FSDP and functional collectives are not named",
    ),
    "calls": Feature(
        ("Module._wrapped_call_impl",), "a wait inside a module is named by torch's own function"
    ),
    "works": Feature(
        ("Work._get_sequence_number",),
        "some deadlocks in asynchronous collectives are not named",
    ),
    "limits": Feature(
        ("ProcessGroup._get_backend", "ProcessGroupGloo._Options._timeout"),
        "deadlocks are suspected only, since a group may have a time limit of its own",
    ),
    "futures": Feature(
        ("Work.get_future",),
        "deadlocks are suspected only, since functions may wait for a collective's future",
    ),
    "stores": Feature(
        ("Store.get", "Store.wait", "Store.timeout"), "waits for a key of a store are not named"
    ),
    "freeing": Feature(
        ("_world.pg_map", "ProcessGroup._get_backend"),
        "ranks blocked in NCCL or in a receive from any rank are not freed",
    ),
    "joining": Feature(
        ("_world.group_count",),
        "after an init_process_group that failed on some ranks, only lab.restart() helps",
    ),
    "meeting again": Feature(
        ("distributed_c10d.rendezvous", "distributed_c10d._unregister_all_process_groups"),
        "a second init_process_group at the same port may wait for ever",
    ),
    "guard": Feature(
        guard.NAMES, "other users of this host can take part in groups and remote calls"
    ),
    "other profilers": Feature(
        (f"autograd.{profiling.RUNNING}",),
        "lab.timeline does not see that a profiler of torch runs already",
    ),
    "backwards": Feature(
        tuple(f"autograd.{name}" for name in profiling.BACKWARDS), "timelines show no backward"
    ),
    "counting": Feature(
        (
            METHODS,
            "_distributed_c10d.Backend",
            *(f"_c10d_functional.{names[0]}" for names in collectives.OPERATORS.values()),
        ),
        "goals and forbidden calls of exercises are not checked",
    ),
    "fewer ranks": Feature(
        ("_world.group_count", "distributed_c10d._update_default_pg"),
        "an exercise's answer that is right with one number of ranks only is accepted",
    ),
    "agents": Feature(
        ("api._is_current_rpc_agent_set",),
        "deadlocks are suspected only, since a rank may be called by RPC",
    ),
    "plug-ins": Feature(
        ("Backend._ensure_backend_registered",),
        "each group takes its ranks 10 ms more, in which torch looks for plug-ins",
    ),
    "stale": Feature(
        (
            "_C._clear_DTensor_sharding_propagator_cache",
            FILE.format("distributed/tensor/_api.py: _op_dispatcher"),
            FILE.format("distributed/device_mesh.py: _dim_group_names"),
        ),
        "after a repair a DTensor may name a group that is gone",
    ),
    "reprs": Feature(
        ("_tensor_str._add_suffixes",),
        "each rank shows its tensors on a GPU with their device, equal ones too",
    ),
}
#: Names that an older torch does not have. What rests on them is a little less there, as it has
#: always been: nothing to tell at each start.
SINCE = {
    "Work._get_sequence_number": "2.15",
    "Backend._ensure_backend_registered": "2.15",
    "_C._clear_DTensor_sharding_propagator_cache": "2.15",
}
#: Off with "deadlocks", as parts of it.
DEADLOCKS = (
    "deadlocks",
    "collectives",
    "collectives of NCCL",
    "firsts",
    "messages",
    "barriers",
    "meetings",
    "inside",
    "works",
    "limits",
    "futures",
    "stores",
)

#: Where the owner of an attribute is.
_OWNERS = {
    "Backend": "distributed.Backend",
    "Module": "nn.Module",
    "_C": "_C",
    "ProcessGroup": "distributed.ProcessGroup",
    "Work": "distributed.Work",
    "Store": "distributed.Store",
    "_world": "distributed.distributed_c10d._world",
    "distributed_c10d": "distributed.distributed_c10d",
    "_distributed_c10d": "_C._distributed_c10d",
    "ProcessGroupGloo": "distributed.distributed_c10d.ProcessGroupGloo",
    "api": "distributed.rpc.api",
    "options": "distributed.rpc.options",
    "autograd": "autograd",
    "_c10d_functional": "ops._c10d_functional",
    "_tensor_str": "_tensor_str",
}


def check() -> list[Missing]:
    """Return the features that are off with this torch and these settings, in about 0.1 ms."""
    found = dict(_missing())
    if setting := recorder.switched_off():
        loss = FEATURES["collectives"].loss
        recording = ("torch's flight recorder",)
        off = Missing(setting, recording, loss, feature="collectives", verb="switches off")
        found.setdefault("collectives", off)
    return list(found.values())


@cache
def _missing() -> dict[str, Missing]:
    return find_missing("torch", FEATURES, lambda name: is_there(name) or _is_new(name))


def is_on(feature: str) -> bool:
    """Return whether torch has what a feature of ``FEATURES`` rests on."""
    missing = _missing()
    return feature not in missing and not (feature in DEADLOCKS and "deadlocks" in missing)


def hidden_waits() -> str:
    """Return which feature of the watch is off, if one is: the reason why a wait is not
    understood."""
    found = (missing for missing in check() if missing.feature in DEADLOCKS)
    return next((str(missing).rstrip(".") for missing in found), "")


def blindness() -> tuple[str, ...]:
    """Return what cannot be seen without which nothing is proved."""
    return tuple(str(m).rstrip(".") for m in check() if m.feature in ("limits", "futures"))


def _is_new(name: str) -> bool:
    return name in SINCE and torch.__version__ < SINCE[name]  # compares as versions do


def is_there(name: str) -> bool:
    """Return whether this torch has a name of ``FEATURES``."""
    if name.startswith(FILE.format("")):
        file, _, attribute = name.removeprefix(FILE.format("")).partition(": ")
        is_file = os.path.exists(frames.path(file))
        return is_defined(attribute, "torch", file) if attribute else is_file
    if name == METHODS:
        return all(map(has_method, COUNTED))
    if name == NCCL and not torch.distributed.is_nccl_available():
        return True
    owner, attribute = name.split(".", 1)
    return find(f"{_OWNERS[owner]}.{attribute}") is not None or _is_set(owner, attribute)


def find(path: str) -> Any:
    """Return what stands at a dotted path below torch, None if there is nothing."""
    start: Any = torch
    return reduce(lambda owner, name: getattr(owner, name, None), path.split("."), start)


def _code(function: str) -> CodeType | None:
    """Return the code of a function of torch.distributed, without its decorators."""
    found = find(f"distributed.distributed_c10d.{function}")
    return getattr(unwrap(found), "__code__", None) if found else None


def has_method(function: str) -> bool:
    """Return whether a function of torch.distributed calls a method that labkit knows."""
    called = getattr(_code(function), "co_names", ())
    methods = (*collectives.MESSAGES, *(m for own in collectives.METHODS.values() for m in own))
    return any(name in methods and find(f"{_OWNERS['ProcessGroup']}.{name}") for name in called)


def _is_set(owner: str, attribute: str) -> bool:
    """Return whether a class sets an attribute of its objects."""
    code = getattr(getattr(find(_OWNERS[owner]), "__init__", None), "__code__", None)
    return attribute in getattr(code, "co_names", ())
