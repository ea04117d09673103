"""What a trial puts around an answer: no fixed sleep, and a disk that has half a file."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest
import torch

from labkit.course import trial_tools
from labkit.course.trial_tools import sleepless, slow_save


def test_only_this_thread_sleeps_no_more() -> None:
    slept: list[float] = []

    def sleep() -> None:
        began = time.monotonic()
        time.sleep(0.2)
        slept.append(time.monotonic() - began)

    original, began = time.sleep, time.monotonic()
    with sleepless():
        thread = threading.Thread(target=sleep)
        thread.start()
        time.sleep(60)
        thread.join()
    assert time.sleep is original
    assert time.monotonic() - began < 30
    assert slept[0] > 0.15


def test_there_is_half_a_file_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "a.pt", []

    def look(seconds: float) -> None:
        seen.append(seconds)
        with pytest.raises(Exception, match=r"zip archive|unexpected EOF|Ran out of input"):
            torch.load(path)

    monkeypatch.setattr(trial_tools, "_pause", look)
    slow_save(torch.save, 0.5)({"w": torch.ones(2)}, path)
    assert seen == [0.5]
    assert torch.load(path)["w"].tolist() == [1, 1]


def test_what_is_no_path_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_tools, "_pause", pytest.fail)
    file = io.BytesIO()
    slow_save(torch.save, 0.5)([1], file)
    assert torch.load(io.BytesIO(file.getvalue())) == [1]
