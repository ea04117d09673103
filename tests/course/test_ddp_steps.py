"""The five scripts of notebook 09 that lead from single.py to DDP: each is a small change."""

from __future__ import annotations

import difflib
from itertools import pairwise
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "notebooks" / "scripts"
STEPS = ("single", "ddp_1_group", "ddp_2_device", "ddp_3_sampler", "ddp_4_ddp", "ddp_5_rank0")
#: Lines that a step takes away or brings: what one reads at a glance.
MOST = 12


def changed(old: str, new: str) -> list[str]:
    """Return the lines of a diff without its headers and context."""
    texts = [(SCRIPTS / f"{name}.py").read_text().splitlines() for name in (old, new)]
    lines = list(difflib.unified_diff(*texts, n=0, lineterm=""))[2:]
    return [line for line in lines if line[0] in "+-"]


@pytest.mark.parametrize(("old", "new"), list(pairwise(STEPS)))
def test_a_step_changes_few_lines(old: str, new: str) -> None:
    lines = changed(old, new)
    assert 0 < len(lines) <= MOST, lines


def test_the_first_script_fits_on_a_screen() -> None:
    lines = (SCRIPTS / "single.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 50
