"""Recognise frames of torch's Python: its files, its functions and the names inside them."""

from __future__ import annotations

import ast
import linecache
import os
import sysconfig
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from ...wire.protocol import FROM_ROOT, ROOTED
from .. import guarded, tracebacks

TORCH = os.path.dirname(torch.__file__) + os.sep
C10D = c10d.__file__
#: Where torch waits in C++ for collectives that it issued itself: DDP, functional collectives.
BLIND = (
    "autograd/graph.py",
    "autograd/__init__.py",
    "autograd/function.py",
    "nn/parallel/",
    "futures/",
    "_ops.py",
    "distributed/distributed_c10d.py",
    "distributed/utils.py",
    "distributed/_functional_collectives.py",
    "distributed/algorithms/",
    "distributed/fsdp/",
    "distributed/_composable/",
    "distributed/tensor/",
)
#: Where ranks meet to make a group, through the store.
MEETINGS = ("distributed/distributed_c10d.py", "distributed/rendezvous.py")
#: Functions of torch.distributed that make a group: every rank has to come.
MAKERS = (
    "init_process_group",
    "new_group",
    "split_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
)
#: Frames that a reader does not take for the call: decorators and torch's own plumbing.
PLUMBING = (
    "wrapper",
    "decorate_context",
    "_wrapped_call_impl",
    "_call_impl",
    "__call__",
    "__torch_dispatch__",
    "trigger_wait",
    "wait_tensor",
    "wait",
)
#: Frames of a module that was called, outermost first; the module is their variable ``self``.
MODULE_CALL = "_wrapped_call_impl"
#: The outermost frames of a backward.
BACKWARDS = ("backward", "grad")
#: The longest call that is named as a whole, with its arguments.
SHORT = 24
#: Contexts in which a forward is an evaluation.
EVALUATIONS = ("no_grad", "inference_mode")
#: The variable of ``init_process_group`` that has the world size.
SIZE = "world_size"
#: Others of its variables, and of the functions that make a sub-group.
RANK, METHOD, LIMIT = "rank", "init_method", "timeout"
ALONE, NAME = "use_local_synchronization", "group_name"
BARRIER = "_store_based_barrier"
#: A rooted collective's variables for its root: in the world and, resolved from it, in the group.
ENDS = {name: "src" if name in FROM_ROOT else "dst" for name in ROOTED}
IN_GROUP = "group_"
#: Its variable for the group.
GROUP = "group"


def path(part: str) -> str:
    """Return where a file or folder of torch stands."""
    return TORCH + part.replace("/", os.sep)


_BLIND = tuple(map(path, BLIND))
_RPC = path("distributed/rpc/")
_HERE = os.path.dirname(__file__)
#: Ours too: it stands between ``init_process_group`` and torch's rendezvous.
_MEETINGS = (*map(path, MEETINGS), os.path.join(_HERE, "rendezvous.py"))
#: Ours, which pass on to torch's C++ what torch's Python calls.
_PASSING = (
    *(os.path.join(_HERE, name) for name in ("listeners.py", "loopback_store.py", "rpc.py")),
    guarded.__file__,
)


def skip(frame: FrameType | None) -> FrameType | None:
    """Return the frame that has called C++, as far as a thread is there by ways of ours."""
    while frame is not None and frame.f_code.co_filename in _PASSING:
        frame = frame.f_back
    return frame


def is_torch(frame: FrameType) -> bool:
    """Tell whether a frame is of torch's Python."""
    return frame.f_code.co_filename.startswith(TORCH)


def is_blind(frame: FrameType) -> bool:
    """Tell whether torch may wait there for collectives that it issued itself.

    Such a frame on top of the stack, in an idle process, is such a wait; but for a barrier that
    is none of the recorder's collectives.
    """
    code = frame.f_code
    return code.co_filename.startswith(_BLIND) and code.co_name != "monitored_barrier"


def is_meeting(frame: FrameType) -> bool:
    """Tell whether ranks meet there to make a group."""
    return frame.f_code.co_filename in _MEETINGS


def is_maker(frame: FrameType) -> bool:
    """Tell whether a frame is the call of a function that makes a group."""
    return frame.f_code.co_filename == C10D and frame.f_code.co_name in MAKERS


def size_of(maker: FrameType) -> int:
    """Return the world size that ``init_process_group`` was given, -1 if none."""
    size = maker.f_locals.get(SIZE, -1)
    return size if isinstance(size, int) else -1


def rank_of(maker: FrameType) -> int:
    """Return the rank that ``init_process_group`` was given, -1 if none."""
    rank = maker.f_locals.get(RANK, -1)
    return rank if isinstance(rank, int) else -1


def method_of(maker: FrameType) -> str:
    """Return the address that ``init_process_group`` was given, "" if none."""
    method = maker.f_locals.get(METHOD)
    return method if isinstance(method, str) else ""


def has_store(maker: FrameType) -> bool:
    """Tell whether ``init_process_group`` was given a store of the caller's."""
    return maker.f_locals.get("store") is not None and not method_of(maker)


def limit_of(maker: FrameType, frames: list[FrameType], bound: timedelta) -> bool:
    """Tell whether a call that makes a group gives up by itself before ``bound``."""
    for frame in frames:
        limit = frame.f_locals.get(LIMIT) if frame.f_code.co_filename == C10D else None
        if isinstance(limit, timedelta) and timedelta(0) < limit < bound:
            return True
        if frame is maker:
            break
    return False


def group_made(frames: list[FrameType]) -> tuple[str, list[int], bool]:
    """Return name and ranks (in the world) of the group that is being made, and whether it meets
    its members alone; "" and none where torch does not say."""
    for frame in frames:
        values = frame.f_locals
        if frame.f_code.co_filename == C10D and ALONE in values:
            name, ranks = values.get(NAME), values.get("ranks")
            alone = bool(values[ALONE])
            if isinstance(name, str) and isinstance(ranks, list):
                return name, ranks, alone
            return "", [], alone
    return "", [], False


def meets_all(frames: list[FrameType]) -> bool:
    """Tell whether all ranks meet after a group was made (TORCH_DIST_INIT_BARRIER=1)."""
    codes = (frame.f_code for frame in frames)
    return any(code.co_filename == C10D and code.co_name == BARRIER for code in codes)


def is_distributed(frame: FrameType) -> bool:
    """Tell whether a frame is of torch.distributed's own functions."""
    return frame.f_code.co_filename == C10D


def is_rpc(frame: FrameType) -> bool:
    """Tell whether a frame is of torch's RPC."""
    return frame.f_code.co_filename.startswith(_RPC)


def is_rpc_start(frame: FrameType) -> bool:
    """Tell whether ranks meet there to start RPC."""
    outer: FrameType | None = frame
    while outer is not None and is_rpc(outer):
        if outer.f_code.co_name == "init_rpc":
            return True
        outer = outer.f_back
    return False


# -- the name of a call ---------------------------------------------------------------------------

_STDLIB = (sysconfig.get_path("stdlib") + os.sep, sysconfig.get_path("platstdlib") + os.sep)
_PACKAGES = os.sep + "site-packages" + os.sep
#: Functions with a decorator (``torch.no_grad``) are called there, by that one's name since 2.15.
_CONTEXTS = path("utils/_contextlib.py")
_ENGINE = (path("autograd/graph.py"), path("autograd/__init__.py"))
_HOOKS = path("distributed/algorithms/ddp_comm_hooks/")


def name_call(frames: list[FrameType], ours: Iterable[str], *, reducing: bool) -> str:
    """Name the call in which a thread waits as its author knows it.

    That is the outermost function of torch that the line calls; where this is torch's inside (a
    decorator, a hook), the line's own words for it. A backward in which DDP's reducer does not wait
    has parentheses: "backward()".

    Parameters
    ----------
    frames
        Of the thread, innermost first.
    ours
        Files of labkit's that stand between torch's Python and its C++.
    reducing
        Whether this rank has a DDP model.
    """
    own = list(ours)
    inside: list[FrameType] = []
    caller = None
    for frame in frames:
        file = frame.f_code.co_filename
        if is_torch(frame):
            inside.append(frame)
        elif file not in own and not _is_stdlib(file):
            caller = frame
            break
    public = [f for f in inside if _is_public(f)]
    if caller is None:  # a thread of torch's own
        public = [f for f in public if not _is_private(f.f_code.co_filename)] or public
    if not inside:
        return "wait"
    outer = inside[-1]
    name = _qualified(public[-1]) if public else ""
    if name in BACKWARDS:
        return name if reducing and _is_reducer(inside) else f"{name}()"
    if outer.f_code.co_name == MODULE_CALL:
        return _name_module(outer, inside, caller)
    if public and outer is public[-1] and not name.startswith("Module."):
        return name
    if outer.f_code.co_name == "__torch_dispatch__":
        return outer.f_code.co_qualname.partition(".")[0]
    if public and is_distributed(public[-1]):  # decorators of torch.distributed
        return name
    return _written(caller) or name or "wait"


def _is_private(file: str) -> bool:
    return os.path.basename(file).startswith("_")


def _is_stdlib(file: str) -> bool:
    return file.startswith("<frozen") or (file.startswith(_STDLIB) and _PACKAGES not in file)


def _is_public(frame: FrameType) -> bool:
    """Tell whether a frame is of a function that its name tells something about."""
    code = frame.f_code
    return not (code.co_name in PLUMBING or _is_inside(frame))


def _is_inside(frame: FrameType) -> bool:
    if frame.f_code.co_filename == _CONTEXTS:
        return True
    name = frame.f_code.co_name
    private = name.startswith("_") and not name.startswith("__")
    return private or "<locals>" in frame.f_code.co_qualname


def _qualified(frame: FrameType) -> str:
    name = frame.f_code.co_qualname
    if name.endswith(".__init__"):
        return name.removesuffix(".__init__")
    return name.rpartition(".")[2] if name.startswith(("Tensor.", "_")) else name


def _is_reducer(inside: list[FrameType]) -> bool:
    """Tell whether DDP's reducer may be what waits in a backward: C++ alone, or a hook of DDP's."""
    files = [f.f_code.co_filename for f in inside]
    return files[0] in _ENGINE or any(file.startswith(_HOOKS) for file in files)


def _name_module(outer: FrameType, inside: list[FrameType], caller: FrameType | None) -> str:
    """Name the call of a module: ``model(x)``; of a DDP model, its forward."""
    module = outer.f_locals.get("self")
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        name = "DistributedDataParallel.forward"
        return f"{name} in evaluation" if _evaluates(module, inside, caller) else name
    return _written(caller) or f"{type(module).__name__}.forward"


def _evaluates(module: torch.nn.Module, inside: list[FrameType], caller: FrameType | None) -> bool:
    """Tell whether a forward is part of an evaluation: by the module's mode, or by a ``with`` or a
    decorator around it. (Whether gradients are on is known in the thread itself alone.)"""
    if not module.training:
        return True
    while caller is not None:
        code = caller.f_code
        decorates = code.co_filename == _CONTEXTS and code.co_name in (*EVALUATIONS, *PLUMBING)
        if decorates or (tracebacks.is_cell(code.co_filename) and _within(caller)):
            return True
        caller = caller.f_back
    return False


def _within(frame: FrameType) -> bool:
    """Tell whether the line of a cell stands in a ``with`` of an evaluation."""
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    return any(first <= frame.f_lineno <= last for first, last in _evaluations(source))


@lru_cache(maxsize=8)  # a wait is looked at ten times a second
def _evaluations(source: str) -> list[tuple[int, int]]:
    """Return the first and the last line of each ``with`` of an evaluation in a cell."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # magics
        return []
    withs = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in withs
        for item in node.items
        if any(name in ast.unparse(item.context_expr) for name in EVALUATIONS)
    ]


def _written(frame: FrameType | None) -> str:
    """Return the words of a line for the call that a frame is in: ``dcp.save``, or all of it where
    it is short; "" if they are not known."""
    if frame is None:
        return ""
    places = list(frame.f_code.co_positions())
    first, last, begin, end = places[frame.f_lasti // 2]
    if None in (first, last, begin, end):
        return ""
    assert first is not None
    assert last is not None
    rows = [linecache.getline(frame.f_code.co_filename, n) for n in range(first, last + 1)]
    encoded = [row.encode() for row in rows]
    if not all(encoded):
        return ""
    encoded[-1] = encoded[-1][:end]
    encoded[0] = encoded[0][begin:]
    try:
        found = ast.parse(b"".join(encoded).decode().strip(), mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return ""
    whole = ast.unparse(found)
    if len(whole) <= SHORT:
        return whole
    if not isinstance(found, ast.Call):
        return ""
    function = ast.unparse(found.func)
    return function if len(function) <= 2 * SHORT else function.rpartition(".")[2]


def root_of(frame: FrameType) -> tuple[Any, int | None, int | None] | None:
    """Return the group of a rooted collective (None: the default one) and its root, as rank in
    the group and in the world as far as they are known; None if the frame is no such call."""
    code = frame.f_code
    if code.co_filename != C10D or code.co_name not in ENDS:
        return None
    values, end = frame.f_locals, ENDS[code.co_name]
    in_group, in_world = values.get(IN_GROUP + end), values.get(end)
    return (
        values.get(GROUP),
        in_group if isinstance(in_group, int) else None,
        in_world if isinstance(in_world, int) else None,
    )
