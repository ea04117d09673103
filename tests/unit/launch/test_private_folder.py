"""The private folder of a lab."""

import os
import tempfile

import pytest

from labkit.base.errors import LabError, StartError
from labkit.launch.private_folder import PrivateFolder, home_variables, sweep
from tests.support.others import NOBODY, as_nobody, as_root, reachable


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return reachable(tmp_path)


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


@as_root
def test_a_place_where_others_can_exchange_it_is_refused(place, monkeypatch):
    place.chmod(0o777)
    with pytest.raises(
        StartError, match=r"not safe from other users: everybody can write to .*; p"
    ):
        PrivateFolder()
    place.chmod(0o1777)
    PrivateFolder().remove()
    os.chown(place, NOBODY, NOBODY)
    with pytest.raises(StartError, match=r"not safe from other users: .* belongs to user"):
        PrivateFolder()
    assert list(place.iterdir()) == []


@as_root
def test_sweep_does_not_touch_what_others_have_laid(place, monkeypatch):
    """They look like left ones, but their files are links: to a device, or to files of ours."""
    mine = PrivateFolder()  # in use
    os.utime(mine.path / "owner", (1, 1))
    precious = place / "precious"
    precious.mkdir()
    (precious / "owner").touch()
    os.utime(precious / "owner", (1, 1))
    place.chmod(0o1777)
    for number, target in enumerate(["/dev/watchdog", precious / "owner", mine.path / "owner"]):
        folder = place / f"labkit-{number}"
        as_nobody("mkdir", folder)
        as_nobody("ln", "-s", target, folder / "owner")
    as_nobody("ln", "-s", precious, place / "labkit-link")
    before = sorted(place.rglob("*"))
    opened = []
    original = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *a, **k: opened.append(path) or original(path, *a, **k)
    )
    sweep()
    assert sorted(place.rglob("*")) == before
    assert opened.count("owner") == 1  # our own
    mine.remove()


def test_a_name_that_is_none_in_utf8_is_refused(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", os.fsdecode(bytes(place) + b"/\xff"))
    with pytest.raises(
        StartError, match=r"a name that sockets cannot have: '.*udcff' \(file names"
    ):
        PrivateFolder()


def test_the_length_of_a_name_counts_in_bytes(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "é" * 45)
    with pytest.raises(StartError, match="too long a name for sockets"):
        PrivateFolder()
    deep = place / ("long" * 25)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    PrivateFolder(sockets=False).remove()


def test_what_belongs_in_a_home_goes_into_the_folder_where_there_is_none(place, monkeypatch):
    for name in ("IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(place))
    assert home_variables(place / "lab") == {}
    monkeypatch.setenv("HOME", str(place / "none"))
    assert home_variables(place / "lab") == {
        "IPYTHONDIR": str(place / "lab" / "ipython"),
        "MPLCONFIGDIR": str(place / "lab" / "matplotlib"),
    }
    monkeypatch.setenv("IPYTHONDIR", "/elsewhere")
    assert list(home_variables(place / "lab")) == ["MPLCONFIGDIR"]
