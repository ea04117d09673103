"""The level of torch's C++ log may differ where this torch can read it again."""

from __future__ import annotations

import sys

import pytest

from labkit.launch import fingerprint

LEVEL = {"TORCH_CPP_LOG_LEVEL": "INFO"}


def test_without_torch_it_may_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert fingerprint.differing({}, LEVEL) == [*LEVEL]
    fingerprint.adapt(LEVEL)


def test_with_a_torch_that_has_the_function_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # noqa: F401

    assert fingerprint.differing({}, LEVEL) == []
    assert fingerprint.differing(LEVEL, {}) == [*LEVEL]  # nothing is read without a variable
    monkeypatch.setattr(fingerprint, "_INITIALIZER", "_ZN3c1011noSuchNameEv")
    assert fingerprint.differing({}, LEVEL) == [*LEVEL]
