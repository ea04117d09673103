"""A disk that has half a file for a while."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from labkit.course import slow_disk
from labkit.course.slow_disk import slow_save


def test_there_is_half_a_file_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "a.pt", []

    def look(seconds: float) -> None:
        seen.append(seconds)
        with pytest.raises(Exception, match=r"zip archive|unexpected EOF|Ran out of input"):
            torch.load(path)

    monkeypatch.setattr(slow_disk, "_pause", look)
    slow_save(torch.save, 0.5)({"w": torch.ones(2)}, path)
    assert seen == [0.5]
    assert torch.load(path)["w"].tolist() == [1, 1]


def test_what_is_no_path_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_disk, "_pause", pytest.fail)
    file = io.BytesIO()
    slow_save(torch.save, 0.5)([1], file)
    assert torch.load(io.BytesIO(file.getvalue())) == [1]
