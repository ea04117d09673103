"""Record with torch's profiler, and know the names of its events.

Torch's public profiler cannot choose what is recorded by scope, nor be started and stopped
around a cell without work of its own. What it is made of is looked up when a recording begins:
most sessions never have one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

#: Names that torch gives its events.
COMMUNICATION = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl):(\w+)")
LOADING = re.compile(r"enumerate\(DataLoader\)#")
OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#(\w+)")
MESSAGES = {"send": "send", "recv": "recv", "recvAnySource": "recv_any"}
LAUNCH = re.compile(r"(?:cuda|cu|hip)[A-Z]")
NCCL_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_?(\w*)", re.IGNORECASE)
#: RecordScope.BACKWARD_FUNCTION: an autograd node.
NODE_SCOPE = 1
#: What a recording is made of: functions of ``torch.autograd``, enumerations of ``_C._profiler``,
#: parts of ``torch.autograd.profiler.profile``, and methods of an event.
FUNCTIONS = (
    "_profiler_enabled",
    "_prepare_profiler",
    "_enable_profiler",
    "_disable_profiler",
    "_toggle_collection_dynamic",
)
ENUMS = ("ProfilerActivity.CPU", "RecordScope.USER_SCOPE", "RecordScope.BACKWARD_FUNCTION")
SETTINGS = ("kineto_activities", "config")
EVENT = (
    "name",
    "start_ns",
    "duration_ns",
    "device_resource_id",
    "scope",
    "device_type",
    "correlation_id",
    "is_hidden_event",
)
#: What autograd runs for a backward, in the namespace where everybody looks it up.
BACKWARDS = ("backward", "grad")


class Raw(NamedTuple):
    """An event as the profiler has it; nanoseconds."""

    name: str
    start: int
    stop: int
    thread: int  #: the system's number of the thread; of a stream, on a GPU
    scope: int = 0
    device: bool = False  #: ran on a GPU
    correlation: int = 0  #: equal for a kernel and its launch


def is_recording() -> bool:
    """Tell whether a profiler of torch runs here."""
    return bool(torch.autograd._profiler_enabled())


class Recorder:
    """Torch's profiler, to be started and stopped once by the thread that it watches.

    Parameters
    ----------
    gpu
        Whether to record what runs on the GPU.
    operators
        Whether to record each operator; else marks and autograd's nodes alone.
    """

    def __init__(self, *, gpu: bool, operators: bool) -> None:
        from torch._C._profiler import RecordScope
        from torch.autograd.profiler import profile

        settings = profile(use_device="cuda" if gpu else None)
        self._activities = settings.kineto_activities
        self._config = settings.config(create_trace_id=True)
        scopes = {RecordScope.USER_SCOPE, RecordScope.BACKWARD_FUNCTION}
        self._scopes = set() if operators else scopes  # none: all

    def start(self) -> None:
        """Begin to record."""
        autograd: Any = torch.autograd  # torch's stub leaves out the last parameter
        autograd._prepare_profiler(self._config, self._activities)
        autograd._enable_profiler(self._config, self._activities, self._scopes)

    def pause(self) -> None:
        """Record nothing any more, though it goes on."""
        from torch._C._profiler import ProfilerActivity

        torch.autograd._toggle_collection_dynamic(False, {ProfilerActivity.CPU})

    def stop(self) -> list[Raw]:
        """End it, and return what was recorded."""
        result = torch.autograd._disable_profiler()
        return [_raw(event) for event in result.events() if not event.is_hidden_event()]


def _raw(event: Any) -> Raw:
    start = event.start_ns()
    return Raw(
        event.name(),
        start,
        start + event.duration_ns(),
        event.device_resource_id(),
        event.scope(),
        "CPU" not in str(event.device_type()),
        event.correlation_id(),
    )


def be_quiet() -> None:
    """Keep the profiler's library from writing its news to stderr: nobody's business in a
    notebook."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def is_loss(module: torch.nn.Module) -> bool:
    """Tell whether a module is one of torch's losses."""
    kind = getattr(torch.nn.modules.loss, "_Loss", None)
    return kind is not None and isinstance(module, kind)


@contextlib.contextmanager
def wrapped_backwards(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Replace what autograd runs for a backward by ``wrap(it)`` for the length of a ``with``."""
    found = wrap_backwards(wrap)
    try:
        yield
    finally:
        for name, function in found.items():
            setattr(torch.autograd, name, function)


def wrap_backwards(
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> dict[str, Callable[..., Any]]:
    """Replace what autograd runs for a backward by ``wrap(it)``. Returns what was there."""
    before = {name: getattr(torch.autograd, name, None) for name in BACKWARDS}
    found = {name: function for name, function in before.items() if function is not None}
    for name, function in found.items():
        setattr(torch.autograd, name, wrap(function))
    return found
