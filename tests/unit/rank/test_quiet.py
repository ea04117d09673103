"""What a rank sends about a request that asks for little, and that no output is lost by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from labkit.rank import quiet, streams
from labkit.wire.protocol import QUIET


class Kernel:
    """A kernel that handles requests in ipykernel's order, and notes what it publishes."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self.parent: dict[str, Any] = {}
        quiet.install(self)

    def get_parent(self, channel: str) -> dict[str, Any]:
        return self.parent

    def _publish_status(self, state: str, channel: str, parent: Any = None) -> None:
        self.published.append(state)

    def _publish_execute_input(self, code: str, parent: Any, number: int) -> None:
        self.published.append(code)

    def finish_metadata(self, parent: Any, metadata: Any, content: Any) -> Any:
        return metadata

    def handle(self, metadata: dict[str, Any], output: str = "") -> dict[str, Any]:
        """Handle a request whose code writes something; return the content of the reply."""
        self.parent = {"metadata": metadata}
        self._publish_status("busy", "shell")
        self._publish_execute_input("the code", self.parent, 1)
        if output:
            streams._sent = object()
            self.published.append(output)
        content: dict[str, Any] = {"status": "ok"}
        self.finish_metadata(self.parent, {}, content)
        self._publish_status("idle", "shell")
        return content


@pytest.fixture(autouse=True)
def _no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_streams", [])


def test_a_request_without_output_costs_its_reply_alone() -> None:
    kernel = Kernel()
    assert kernel.handle({QUIET: True}) == {"status": "ok", QUIET: True}
    assert kernel.published == []


def test_the_end_is_told_after_output() -> None:
    kernel = Kernel()
    assert kernel.handle({QUIET: True}, "hello")[QUIET] is False
    assert kernel.published == ["hello", "idle"]
    assert kernel.handle({QUIET: True})[QUIET] is True


@pytest.mark.parametrize("metadata", [{}, {"label": None}, {QUIET: False}])
def test_other_requests_are_handled_as_ever(metadata: dict[str, Any]) -> None:
    kernel = Kernel()
    assert kernel.handle(metadata) == {"status": "ok"}
    assert kernel.published == ["busy", "the code", "idle"]


def test_a_request_that_began_before_says_nothing() -> None:
    kernel = Kernel()
    content: dict[str, Any] = {}
    kernel.finish_metadata({"metadata": {QUIET: True}}, {}, content)  # no "busy" of this one
    assert content == {QUIET: False}


def test_the_control_channel_is_left_alone() -> None:
    kernel = Kernel()
    kernel.parent = {"metadata": {QUIET: True}}
    kernel._publish_status("busy", "control")
    assert kernel.published == ["busy"]


def test_output_that_waits_in_a_stream_leaves_first(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()

    def flush() -> None:
        streams._sent = object()

    late = SimpleNamespace(now=flush, wait_for_c=lambda: None)
    monkeypatch.setattr(streams, "_streams", [SimpleNamespace(flush=late)])
    assert kernel.handle({QUIET: True})[QUIET] is False
    assert kernel.published == ["idle"]


def test_nothing_is_done_where_ipykernel_hides_a_name() -> None:
    kernel = SimpleNamespace(_publish_status=print, finish_metadata=print)
    quiet.install(kernel)
    assert kernel._publish_status is print
