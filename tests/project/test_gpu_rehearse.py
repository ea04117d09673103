"""The machine that ``tests.gpu.rehearse`` plays has the limits of one that is lent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.gpu import rehearse
from tests.gpu.rehearse import Machine, RefusedError
from tests.support.conda_versions import ROOT
from tests.support.system import needs

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="making namespaces needs root")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a checkout: a tracked file, an untracked one, and a folder that git ignores."""
    folder = tmp_path / "tree"
    (folder / "build" / "part").mkdir(parents=True)
    (folder / ".gitignore").write_text("build/\n")
    (folder / "untracked.txt").write_text("here")
    (folder / "build" / "part" / "wheel").write_text("carried")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "add", ".gitignore"], check=True)
    return folder


@pytest.fixture
def machine(tmp_path: Path, tree: Path) -> Machine:
    return Machine(tmp_path / "machine", Path(sys.executable).parent, tree)


@as_root
@needs("ip")
def test_a_command_sees_the_tree_and_what_is_carried_and_no_network(machine, tree):
    done = machine.run("cat untracked.txt build/part/wheel; touch $TMPDIR/kept", ["build/part"])
    assert (done.code, done.tail) == (0, "herecarried")
    assert done.carried == len("build/\nherecarried")
    assert done.not_carried == ()
    done = machine.run("ls $TMPDIR build/part; ip -o addr | awk '{print $2}' | sort -u")
    assert sorted(done.tail.split()) == ["/mnt/tmp:", "build/part:", "kept", "lo", "wheel"]
    assert machine.starts == 1


@as_root
@needs("ip")
def test_an_idle_machine_forgets_everything(machine):
    machine.idle_seconds = 0.0
    machine.run("touch $TMPDIR/kept", ["build/part"])
    done = machine.run("ls -d $TMPDIR/kept build/part; true")
    assert done.tail.count("No such file") == 2
    assert machine.run("true", ["build/none"]).not_carried == ("build/none",)
    assert machine.starts == 3


@as_root
@needs("ip")
def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(machine):
    mark = f"sleep 600.{os.getpid()}"
    done = machine.run(f"echo early > $OUT/log; setsid {mark} & {mark}", seconds=1)
    assert done.code == 124
    assert [path.read_text() for path in done.files] == ["early\n"]
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == mark.split()]


def test_what_is_too_much_is_refused_before_anything_runs(machine, tree, monkeypatch):
    with pytest.raises(RefusedError, match="2001 of 2000 characters"):
        machine.run("x" * 2001)
    with pytest.raises(RefusedError, match="9 paths are carried, 8 are allowed"):
        machine.run("true", [f"build/{i}" for i in range(9)])
    monkeypatch.setattr(rehearse, "CARRIED_BYTES", 15)
    with pytest.raises(RefusedError, match="MiB would travel"):
        machine.run("true", ["build/part"])
    assert machine.starts == 0


def test_eight_files_come_back_none_of_them_large_or_deep(tmp_path, monkeypatch):
    monkeypatch.setattr(rehearse, "FILE_BYTES", 10)
    for number in range(9):
        (tmp_path / f"f{number}").write_text("x")
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "deep").write_text("x")
    (tmp_path / "a" / "b" / "large").write_text("x" * 11)
    (tmp_path / "a" / "odd name").write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "f0")
    kept, left_out = rehearse.fitting(tmp_path)
    assert [path.name for path in kept] == [f"f{number}" for number in range(8)]
    assert left_out == ("a/b/c/deep (a folder too deep)", "a/b/large (too large)",
                        "a/link (a link)", "a/odd name (an odd name)",
                        "f8 (too many files)")  # fmt: skip


def test_the_plans_are_the_readmes_and_fit_into_the_machines_limits():
    text = (ROOT / "tests/gpu/README.md").read_text()
    a, b = rehearse.commands("A", text), rehearse.commands("B", text)
    assert [row.name for row in a] == ["A1"]
    assert [row.name for row in b] == ["B1", "B2", "B3"]
    carried = [path for row in b for path in row.carry if "wheels" in path]
    assert sorted(carried) == [f"build/wheels/{n}" for n in (1, 2)]
    for row in [*a, *b]:
        assert len(row.text) <= rehearse.COMMAND_CHARACTERS
        assert row.seconds <= rehearse.COMMAND_SECONDS
    minutes = rehearse.START_SECONDS + sum(row.seconds for row in b if row.name in ("B1", "B2"))
    assert minutes <= rehearse.DEVICE_SECONDS - 60


def test_the_checkout_leaves_room_for_a_part():
    """It travels with each command, beside a part of the size that the README names."""
    part = re.search(r"--part (\d+)", (ROOT / "tests/gpu/README.md").read_text())
    assert part is not None
    files = Machine(Path(), Path(), ROOT)._files([])
    size = sum((ROOT / file).stat().st_size for file in files)
    assert size + int(part[1]) * 1_000_000 < rehearse.CARRIED_BYTES - 1_000_000


def test_a_command_is_made_longer_for_a_slower_machine():
    row = rehearse.Command("B5", (), 420.0, 'x --plan b --seconds 360 --out "$OUT"')
    scaled = row.scaled(4)
    assert scaled.seconds == 1680
    assert scaled.text == 'x --plan b --seconds 1440 --no-gpu --scale 4 --out "$OUT"'
    assert rehearse.Command("B2", (), 60.0, "du").scaled(4).text == "du"
