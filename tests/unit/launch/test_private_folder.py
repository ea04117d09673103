"""The private folder of a lab."""

import os
import tempfile

import pytest

from labkit.errors import LabError
from labkit.launch.private_folder import PrivateFolder, sweep


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_only_its_user_can_enter(place):
    folder = PrivateFolder()
    assert folder.path.parent == place
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    folder.remove()
    assert list(place.iterdir()) == []


def test_sweep_removes_what_has_no_owner_and_nothing_else(place):
    kept, left = PrivateFolder(), PrivateFolder()
    os.close(left._lock)  # as when its owner was killed
    left._lock = None
    fresh = place / "labkit-fresh"  # somebody is just making it
    fresh.mkdir()
    (fresh / "owner").touch()
    (place / "labkit-foreign").mkdir()
    for folder in (kept, left):
        os.utime(folder.path / "owner", (1, 1))
    sweep()
    assert {p.name for p in place.iterdir()} == {kept.path.name, "labkit-fresh", "labkit-foreign"}
    kept.remove()


def test_no_room_is_one_sentence_and_leaves_nothing(place, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(LabError, match=r"no private folder in .* \(No space left on device\)"):
        PrivateFolder()
    assert list(place.iterdir()) == []


def test_a_name_too_long_for_sockets_is_refused(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / ("x" * 90)))
    with pytest.raises(LabError, match=r"too long a name for sockets: .*; point TMPDIR at one"):
        PrivateFolder()
