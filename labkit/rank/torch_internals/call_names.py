"""Name the call in which a thread waits as its author knows it."""

from __future__ import annotations

import ast
import linecache
import os
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from types import FrameType

import torch

from .. import tracebacks
from .frames import PLUMBING, is_distributed, is_torch, path

#: Frames of a module that was called, outermost first; the module is their variable ``self``.
MODULE_CALL = "_wrapped_call_impl"
#: The outermost frames of a backward.
BACKWARDS = ("backward", "grad")
#: The longest call that is named as a whole, with its arguments.
SHORT = 24
#: Contexts in which a forward is an evaluation.
EVALUATIONS = ("no_grad", "inference_mode")
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
    """Return whether a frame is of a function that its name tells something about."""
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
    """Return whether DDP's reducer may be what waits in a backward: C++ alone, or a hook of
    DDP's."""
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
    """Return whether a forward is part of an evaluation: by the module's mode, or by a ``with`` or
    a decorator around it. (Whether gradients are on is known in the thread itself alone.)"""
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
    """Return whether the line of a cell stands in a ``with`` of an evaluation."""
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
