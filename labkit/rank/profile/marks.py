"""Mark forwards and backwards in torch's profile, through torch's own hooks.

A forward is the outermost call of a module.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ..torch_internals import profiling
from . import classify


@contextlib.contextmanager
def marking() -> Iterator[None]:
    """Mark each forward and each backward of this thread, through torch's own hooks."""
    me = threading.get_ident()
    stack: list[Any] = []  # the open mark of the outermost module, then None for each inner one

    def enter(module: torch.nn.Module, inputs: Any) -> None:
        if threading.get_ident() == me:
            name = "loss" if profiling.is_loss(module) else type(module).__name__
            stack.append(None if stack else _mark("forward", name))

    def leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if threading.get_ident() == me and stack and (mark := stack.pop()) is not None:
            mark.__exit__(None, None, None)

    handles = [
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    ]
    try:
        with profiling.wrapped_backwards(lambda function: _marked(function, me)):
            yield
    finally:
        for handle in handles:
            handle.remove()
        while stack:
            if (mark := stack.pop()) is not None:
                mark.__exit__(None, None, None)


def _mark(kind: str, name: str) -> Any:
    mark = record_function(f"{classify.OURS}{kind}:{name}")
    mark.__enter__()
    return mark


def _marked(function: Callable[..., Any], thread: int) -> Callable[..., Any]:
    """Wrap autograd's backward or grad so that it is marked."""

    @wraps(function)
    def marked(*args: Any, **named: Any) -> Any:
        if threading.get_ident() != thread:
            return function(*args, **named)
        with record_function(f"{classify.OURS}backward:{function.__name__}"):
            return function(*args, **named)

    return marked
