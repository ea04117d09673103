"""A request to ranks that are only written down: for tests of what follows and finishes one."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from labkit.base.clock import Clock
from labkit.launch.launcher import ForkedLauncher
from labkit.runtime.output import LateOutput, Output
from labkit.runtime.request import Request


class FakeGroup:
    """The process group of ranks that are only written down; counts its repairs."""

    def __init__(self, size: int, *, join: bool = True, clock: Clock | None = None) -> None:
        warm = SimpleNamespace(closed=SimpleNamespace(is_set=lambda: False), root="")
        self.cluster = SimpleNamespace(
            size=size,
            deaths={},
            launcher=ForkedLauncher(warm),
            clock=clock or Clock(),
            measure_after=float("inf"),  # nobody is there to be asked
            late=LateOutput(SimpleNamespace(metadata={})),
            take_late=dict,
        )
        self.join = join
        self.broken = False
        self.repairs = 0

    def repair(self) -> bool:
        self.repairs += 1
        return True


def reply(value: Any = None, *, stdout: str = "", done: bool = True) -> Any:
    """Return a rank's reply as ipyparallel has it, with all of its output."""
    future: Any = concurrent.futures.Future()
    future.output = concurrent.futures.Future()
    future.output.set_result(None)
    future.msg_id = str(id(future))
    future.labkit_output = Output()
    if stdout:
        content = {"name": "stdout", "text": stdout}
        future.labkit_output.note({"header": {"msg_type": "stream"}, "content": content})
    if done:
        future.set_result(value)
    return future


def request_with(replies: Sequence[Any], **group: Any) -> Request:
    """Return a request to as many ranks as there are replies."""
    held: Any = FakeGroup(len(replies), **group)
    return Request(held, list(range(len(replies))), None, dict(enumerate(replies)))


def failed(name: str, message: str = "") -> tuple[str, Any]:
    """Return the value of a reply that stands for an error."""
    return "error", (name, message, [f"{name}: {message}"])
