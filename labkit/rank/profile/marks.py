"""Note forwards and backwards, through torch's own hooks. A forward is the outermost call of a
module."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch.nn.modules import loss
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ...wire.recording import Event
from ..torch_internals import profiling


@contextlib.contextmanager
def marking() -> Iterator[list[Event]]:
    """Record each forward and each backward of this thread in the list that this yields."""
    me = threading.get_ident()
    found: list[Event] = []
    begun: list[int] = []  # of the modules that run now, the outermost first

    def enter(module: torch.nn.Module, inputs: Any) -> None:
        if threading.get_ident() == me:
            begun.append(time.time_ns())

    def leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if threading.get_ident() == me and begun:
            start = begun.pop()
            if not begun:
                found.append(Event("forward", _name(module), start, time.time_ns()))

    def marked(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            start = time.time_ns()
            try:
                return function(*args, **named)
            finally:
                if threading.get_ident() == me:
                    found.append(Event("backward", function.__name__, start, time.time_ns()))

        return call

    handles = [
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    ]
    before = profiling.wrap_backwards(marked)
    try:
        yield found
    finally:
        for name, function in before.items():
            setattr(torch.autograd, name, function)
        for handle in handles:
            handle.remove()


def _name(module: torch.nn.Module) -> str:
    """Return what a forward is called: its module's class, and "loss" for torch's losses."""
    is_loss = any(kind.__module__ == loss.__name__ for kind in type(module).__mro__)
    return "loss" if is_loss else type(module).__name__
