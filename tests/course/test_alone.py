"""What one process of ``single.py`` trains, which scripts for several are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.course.exercises.nb09.alone import EPOCHS, STEPS, Alone


def test_it_trains_although_the_folder_in_which_it_began_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "gone").mkdir()
    monkeypatch.chdir(folder)
    alone = Alone()
    folder.rmdir()
    try:
        assert len(alone.steps) == EPOCHS * STEPS
    finally:
        alone.close()
