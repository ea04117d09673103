"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labkit.base.files import reason, write_whole


def test_it_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"one")

    def half(self: Path, target: Path) -> None:
        self.write_bytes(b"t")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", half)
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(path, b"two")
    assert reason(caught.value) == "No space left on device"
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "file", b"one")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "file"
    precious.write_bytes(b"mine")
    path.symlink_to(precious)
    for name in (f".file.{os.getpid()}.part", ".file.part"):  # as somebody could guess
        (tmp_path / name).symlink_to(precious)
    write_whole(path, b"one")
    assert precious.read_bytes() == b"mine"
    assert path.read_bytes() == b"one"
    assert not path.is_symlink()


def test_a_new_file_has_the_mode_that_others_get(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_whole(tmp_path / "file", b"one")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode
