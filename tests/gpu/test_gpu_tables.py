"""The tables of faults and deadlocks on real NCCL say what they say on the fake one.

Every tensor of a row lies on the GPU, by torch's default device. A row that ends differently
shows where the fake NCCL (``tests.support.fake_nccl``) is wrong, or labkit: what was seen is
kept with the report, and ``python -m tests.gpu.record`` makes a test for the fake of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest

import labkit
from labkit import Deadlock, RankDied, SuspectedDeadlock
from tests.ranks import test_deadlock_programs as deadlocked
from tests.ranks import test_faults as faults
from tests.ranks.test_tables_on_fake_nccl import rows
from tests.support import deadlocks
from tests.support.cells import inside, results, run_cell
from tests.support.observed import Observed, Record, observe

from .ranks import FAKE, needs_nccl_for, restored, start

pytestmark = [pytest.mark.gpu, needs_nccl_for(2)]

ON_THE_GPU = "torch.set_default_device(device)"
#: What real NCCL was seen to do otherwise than the fake one (H200, NCCL 2.30): calls that do not
#: fit meet, and each ends where what comes is enough for it.
ON_NCCL: dict[str, dict[str, Any]] = {
    "another order on one rank": {"stuck": deadlocks.only(1)},
    "another shape on one rank": {"errors": (SuspectedDeadlock,), "stuck": deadlocks.only(1)},
    "another type on one rank": {"errors": (SuspectedDeadlock,), "stuck": deadlocks.only(1)},
}
#: What it ends on every rank, without a word: labkit warns after the cell.
ENDS = ("two sources",)


@pytest.fixture(scope="module")
def _lab() -> Iterator[labkit.Lab]:
    with start(2, preload=deadlocked.PRELOAD) as started:
        yield started


@pytest.fixture
def lab(_lab: labkit.Lab) -> labkit.Lab:
    """Return two ranks, alive and idle, whose tensors lie on the GPU."""
    restored(_lab)
    run_cell(_lab, ON_THE_GPU)
    return _lab


def seen(
    lab: labkit.Lab, record: Record, cell: str, before: str = "", ranks: list[int] | None = None
) -> tuple[Observed, str, set[int]]:
    """Run a cell; return what was to be seen, the message, and the ranks that ended."""
    finished = observe(lab, record, cell, before, ranks)
    assert not finished.ending.still
    return Observed.of(finished), str(finished.error), set(inside(lab).cluster.deaths)


def works(lab: labkit.Lab, dead: set[int], marker: str) -> None:
    """Check that the ranks are in step and in one group, with what they had."""
    if dead:
        lab.restart(ranks=sorted(dead))
    n = len(lab)
    assert results(run_cell(lab, deadlocked.SUM)) == [str(n * (n + 1) / 2)] * n
    kept = results(run_cell(lab, "globals().get('marker')"))
    assert [kept[r] for r in range(n) if r not in dead] == [repr(marker)] * (n - len(dead))


@rows([p for p in [*faults.FAULTS, *deadlocks.PROGRAMS] if 2 in p.sizes], "program")
def test_a_deadlock_is_named_and_survived(
    lab: labkit.Lab, program: deadlocks.Program, record_property: Record
) -> None:
    n = len(lab)
    if not FAKE:
        program = dataclasses.replace(program, **ON_NCCL.get(program.name, {}))
    if not FAKE and program.name in ENDS:
        pytest.skip("NCCL ends it: see test_gpu_deadlocks")
    lab["marker"] = program.name
    before = deadlocks.cell(program.before, 6) if program.before else ""
    ranks = program.ranks(n) if program.ranks else None
    found, text, dead = seen(lab, record_property, program.cell, before, ranks)
    names = {error.__name__ for error in program.errors}
    if program.answer != deadlocks.PROVED and Deadlock in program.errors:
        names.add(SuspectedDeadlock.__name__)
    assert found.error in names, text
    for pattern in program.says:
        assert re.search(pattern, text, re.MULTILINE), (pattern, text)
    if program.dead is not None or RankDied not in program.errors:
        assert dead == ({program.dead} if program.dead is not None else set())
    if not dead:  # gloo ends a rank that gets more than its tensor holds
        if program.stuck is not None:
            stuck = program.stuck(n)
            assert stuck <= set(found.stuck) <= stuck | program.perhaps(n), text
        assert program.line is None or f"In[7], line {program.line}" in text, text
    if program.after:
        run_cell(lab, program.after)
    works(lab, dead, program.name)
