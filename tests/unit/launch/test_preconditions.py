"""What the ranks of one machine need is missing: each lack is one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labkit.base.errors import StartError
from labkit.launch import preconditions


@pytest.mark.parametrize(
    ("value", "prefixes"),
    [
        ("eth9", False),
        ("eth", False),  # gloo takes whole names
        ("lo,eth9", False),
        ("eth9", True),
        ("=eth", True),
        ("^eth,lo", True),
    ],
)
def test_a_left_over_interface_is_one_sentence(
    value: str, prefixes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preconditions, "_usable_interfaces", lambda: {"eth0", "lo"})
    monkeypatch.setenv("ANY_IFNAME", value)
    with pytest.raises(StartError) as caught:
        preconditions.check_interface("ANY_IFNAME", prefixes=prefixes)
    assert str(caught.value).startswith(f"ANY_IFNAME={value} names no network interface")
    assert "(eth0, lo)" in str(caught.value)
    assert "os.environ.pop('ANY_IFNAME')" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "prefixes"),
    [
        ("", False),
        ("eth0", False),
        ("lo, eth0", False),
        ("eth", True),
        ("ib,eth", True),
        ("=lo", True),
        ("^lo", True),
    ],
)
def test_an_interface_that_is_there_is_taken(
    value: str, prefixes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preconditions, "_usable_interfaces", lambda: {"eth0", "lo"})
    monkeypatch.setenv("ANY_IFNAME", value)
    preconditions.check_interface("ANY_IFNAME", prefixes=prefixes)


def test_where_interfaces_cannot_be_listed_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preconditions, "_usable_interfaces", set)
    monkeypatch.setenv("ANY_IFNAME", "eth9")
    preconditions.check_interface("ANY_IFNAME")


def test_loopback_is_among_the_interfaces() -> None:
    assert "lo" in preconditions._usable_interfaces()


def test_a_folder_that_is_gone_is_told_from_one_that_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work (deleted)"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert preconditions.folder_gone_reason() == ""
    folder.rename(tmp_path / "moved")
    assert preconditions.folder_gone_reason() == ""
    (tmp_path / "moved").rmdir()
    assert preconditions.folder_gone_reason(os.getpid()) == f"{tmp_path}/moved was deleted"
    (tmp_path / "moved").mkdir()
    with pytest.raises(StartError, match=r"moved was deleted, and another folder made under its"):
        preconditions.check_folder()
    monkeypatch.chdir(tmp_path)
    preconditions.check_folder()
