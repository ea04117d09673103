"""torchrun in a process that has imported torch and much more."""

from __future__ import annotations

import inspect
import sys

import pytest

from labkit.launch import torchrun_owner


class _Modules(dict):  # type: ignore[type-arg]
    """Stands for ``sys.modules``; nobody may go through all of them."""

    def copy(self) -> dict[str, object]:
        raise AssertionError("inspect looks through all modules")


def test_the_frames_that_began_the_process_are_found_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspect, "modulesbyfile", {})
    code = compile("import sys; frame = sys._getframe()", "<frozen runpy>", "exec")
    names: dict[str, object] = {}
    exec(code, names)
    monkeypatch.setattr(sys, "modules", _Modules(sys.modules))
    with pytest.raises(AssertionError, match="looks through"):
        inspect.getframeinfo(names["frame"])  # type: ignore[arg-type]
    torchrun_owner._know_frozen_modules()
    assert inspect.getframeinfo(names["frame"]).filename == "<frozen runpy>"  # type: ignore[arg-type]
