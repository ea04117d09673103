"""The level of torch's C++ log is taken over where this torch can do that."""

from __future__ import annotations

import sys

import pytest

from labkit.launch import cpp_log


def test_without_torch_there_is_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not cpp_log.can_be_read_again()
    cpp_log.read_again()


def test_a_torch_that_has_it_no_longer_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # noqa: F401

    assert cpp_log.can_be_read_again()
    monkeypatch.setattr(cpp_log, "_SYMBOL", "_ZN3c1011noSuchNameEv")
    assert not cpp_log.can_be_read_again()
    cpp_log.read_again()
