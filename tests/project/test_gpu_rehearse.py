"""The machine that ``tests.gpu.rehearse`` plays has the limits of one that is lent."""

from __future__ import annotations

import re
from pathlib import Path

from tests.gpu import rehearse
from tests.gpu.rehearse import Machine
from tests.support.conda_versions import ROOT


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
