"""A process's memory is put into huge pages: what is in it stays, and what is empty stays empty."""

from __future__ import annotations

import mmap
import sys

import pytest

from labkit.launch import huge_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has them")


@pytest.fixture
def size():
    return int((huge_pages._SETTINGS / "hpage_pmd_size").read_text())


def test_memory_keeps_what_is_in_it(size):
    block = mmap.mmap(-1, 4 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    text = bytes(range(256)) * (len(block) // 256)
    block[:] = text
    steps = sum(1 for _ in huge_pages.collapse())
    assert block[:] == text
    if "[never]" not in (huge_pages._SETTINGS / "enabled").read_text():
        assert steps >= 3


def test_what_is_empty_for_the_most_part_is_left_alone(size):
    def filled():
        return len(list(huge_pages._filled(size)))

    before = filled()
    block = mmap.mmap(-1, 9 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block[::size] = b"1" * 9
    assert filled() < before + 4
    block[:] = b"1" * len(block)
    assert filled() >= before + 8


@pytest.mark.parametrize("text", [None, "always madvise [never]\n"])
def test_a_system_without_them_is_left_alone(tmp_path, monkeypatch, text):
    monkeypatch.setattr(huge_pages, "_SETTINGS", tmp_path)
    if text is not None:
        (tmp_path / "hpage_pmd_size").write_text("2097152\n")
        (tmp_path / "enabled").write_text(text)
    assert list(huge_pages.collapse()) == []
