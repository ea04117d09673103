"""The file of a learner's progress: what it counts, and that nothing damages it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from labkit import DataError
from labkit.base import times
from labkit.course import progress
from labkit.course.progress import FILE, LARGEST, Entry, Progress, change, read

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def checked(folder: Path, *, passed: bool = False, mistake: str | None = None) -> Progress:
    """Note a check of 00-1."""
    notebook = "00_start_here.ipynb"
    return change(folder, "00-1", notebook, lambda entry, now: entry.check(passed, mistake, now))


def test_the_file_is_as_others_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "now", lambda: NOON)
    assert read(tmp_path) == Progress()
    checked(tmp_path, mistake="It is two.")
    monkeypatch.setattr(progress, "now", lambda: NOON + timedelta(seconds=90))
    change(tmp_path, "00-1", "", Entry.hint)
    written = checked(tmp_path, passed=True)
    assert json.loads((tmp_path / FILE).read_text()) == {
        "version": 2,
        "notebook": "00_start_here.ipynb",
        "exercises": {
            "00-1": {
                "passed": True,
                "tries": 2,
                "hints": 1,
                "solution": False,
                "minutes": 1.5,
                "mistakes": {"It is two.": 1},
                "last": "2026-11-27T12:01:30+00:00",
            }
        },
    }
    assert read(tmp_path) == written


def test_what_comes_after_the_first_pass_does_not_count() -> None:
    entry = Entry()
    entry.check(True, None, NOON)
    later = NOON + timedelta(seconds=60)
    entry.check(False, "It is two.", later)
    entry.hint(later)
    entry.see_solution(later)
    assert entry == Entry(passed=True, tries=1, last=later)


def test_minutes_have_no_pause_in_them() -> None:
    entry, time = Entry(), NOON
    for seconds in (0, 60, times.PAUSE, times.PAUSE + 1, -3600, 30):
        time += timedelta(seconds=seconds)
        entry.check(False, None, time)
    assert entry.minutes == pytest.approx((60 + times.PAUSE + 30) / 60)


def start(folder: Path, code: str) -> subprocess.Popen[bytes]:
    """Start a process with a folder and this module's function."""
    begin = f"""
import os, signal
from pathlib import Path
from labkit.course.progress import *
folder = Path({str(folder)!r})
"""
    return subprocess.Popen([sys.executable, "-c", begin + code])


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    code = """
times.PROGRESS_LOCKED = times.Bound(300)  # nobody writes a hundred times in a second, as these do
for _ in range(40):
    change(folder, "00-1", "", Entry.hint)
    change(folder, f"01-{os.getpid()}", "", Entry.hint)
"""
    processes = [start(tmp_path, code) for _ in range(3)]
    assert [process.wait(300) for process in processes] == [0, 0, 0]
    hints = {name: entry.hints for name, entry in read(tmp_path).exercises.items()}
    assert hints == {"00-1": 120, **{f"01-{process.pid}": 40 for process in processes}}


def test_a_process_that_is_killed_before_it_replaces_the_file(tmp_path: Path) -> None:
    before = checked(tmp_path)
    code = """
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
change(folder, "00-1", "", Entry.hint)
"""
    assert start(tmp_path, code).wait(300) == -signal.SIGKILL
    assert read(tmp_path) == before
    assert checked(tmp_path).exercises["00-1"].tries == 2  # and the lock is free


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = checked(tmp_path)

    def full_disk(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(progress, "write_whole", full_disk)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)\.$"):
        checked(tmp_path)
    assert read(tmp_path) == before


def test_a_lock_that_is_not_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    monkeypatch.setattr(times, "PROGRESS_LOCKED", times.Bound(0.01))
    with FileLock(tmp_path / progress.LOCK), pytest.raises(DataError, match="is locked by another"):
        checked(tmp_path)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\xff",
        '{"notebook": "00_start_here.ipynb"}',
        '{"version": "1"}',
        '{"version": 1, "exercises": ["00-1"]}',
        '{"version": 1, "exercises": {"00-1": {"tries": -1}}}',
        '{"version": 1, "exercises": {"00-1": {"minutes": 1e999}}}',
        '{"version": 1, "exercises": {"00-1": {"last": "yesterday"}}}',
        '{"version": 1, "exercises": {"00-1": {"last": "2026-11-27T12:00:00"}}}',
        '{"version": 1, "notebook": ' + "[" * 100_000,
        json.dumps({"version": 1, "notebook": "x" * LARGEST}),
    ],
    ids=lambda text: text[:60],
)
def test_a_damaged_file_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE
    path.write_bytes(text.encode("latin-1"))
    for use in (read, checked):
        with pytest.raises(DataError, match=r"is damaged, or labkit has not written it\."):
            use(tmp_path)
    assert path.read_bytes() == text.encode("latin-1")


def test_version_1_is_read_with_the_numbers_of_today(tmp_path: Path) -> None:
    old = {"00-1": {"hints": 1}, "04-1": {"tries": 4}, "05-1": {"tries": 5}, "my-1": {"tries": 6}}
    old |= {"04-4": {"tries": 7}}  # in another notebook since
    text = json.dumps({"version": 1, "notebook": "06_ddp.ipynb", "exercises": old})
    (tmp_path / FILE).write_text(text)
    found = read(tmp_path)
    assert found.notebook == "07_ddp.ipynb"
    tries = {name: entry.tries for name, entry in found.exercises.items()}
    assert tries == {"00-1": 0, "05-1": 4, "04-1": 5, "my-1": 6, "06-2": 7}
    assert checked(tmp_path).exercises["05-1"].tries == 4
    assert read(tmp_path).exercises["05-1"].tries == 4  # translated once: it is version 2 now


def test_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    text = '{"version": 3, "exercises": [["00-1", "gold"]]}'
    (tmp_path / FILE).write_text(text)
    with pytest.raises(DataError, match=r"was written by a newer labkit"):
        checked(tmp_path)
    assert (tmp_path / FILE).read_text() == text


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: object) -> None:
    make(tmp_path / FILE)  # type: ignore[operator]
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path)
