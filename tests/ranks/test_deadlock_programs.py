"""Cells that wait forever are named, freed and survived, however well the wait is hidden.

What must be certain is proved; where labkit cannot see whether something could still come, the
same ranks are suspected, with the reason.
"""

from __future__ import annotations

import re

import pytest

import labkit
from labkit import Deadlock, RankDied, RankError, SuspectedDeadlock
from labkit.wire.processes import free_port
from tests.support import deadlocks
from tests.support.cells import finish_cell, inside, restored, results, run_cell, send_cell
from tests.support.deadlocks import EITHER, PROVED, Program
from tests.support.events import HANG_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("alarmed")]

#: How long a suspicion may last here before it ends the cell, where there is no proof to come.
SUSPECT_SECONDS = 3.0

SUM = "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\nx.item()"
#: Imported beforehand, and what DDP's first step imports.
PRELOAD = (
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.tensor",
    "torch.utils.data",
    "tqdm",
)
WARM = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
model(torch.ones(1)).sum().backward()
del model
"""
JOIN = """
dist.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
"""


@pytest.fixture(scope="module", params=[2, 4])
def module_lab(request):
    with labkit.start(request.param, preload=PRELOAD) as started:
        run_cell(started, WARM)
        yield started


@pytest.fixture(scope="module", params=[2, 4])
def module_lab_without_group(request):
    with labkit.start(request.param, join=False) as started:
        yield started


@pytest.fixture
def lab(module_lab):
    return restored(module_lab)


@pytest.fixture
def lab_without_group(module_lab_without_group):
    return restored(module_lab_without_group)


def check(lab, program: Program) -> list[int]:
    """Run a program: it is named as the table says, and all its ranks come back. Return those that
    were replaced."""
    n = len(lab)
    lab["marker"] = program.name
    if program.before:
        run_cell(lab, deadlocks.cell(program.before, 6))
    ranks = program.ranks(n) if program.ranks else list(range(n))
    patience = HANG_SECONDS if program.answer == PROVED else SUSPECT_SECONDS
    finished = finish_cell(send_cell(lab, program.cell, ranks), suspect=patience)
    ending, text = finished.ending, str(finished.error)
    names = {Deadlock: SuspectedDeadlock} if ending.kind == "suspected" else {}
    assert type(finished.error) in [names.get(e, e) for e in program.errors], text
    for pattern in program.says:
        assert re.search(pattern, text, re.MULTILINE), (pattern, text)
    assert not ending.still
    if ending.kind == "died":  # gloo ends a rank that gets more than its tensor holds
        dead = sorted(inside(lab).cluster.deaths)
        assert RankDied in program.errors
        assert program.dead is None or dead == [program.dead]
        with pytest.raises(RankDied, match="ended with"):
            run_cell(lab, "1")
        lab.restart(ranks=dead)
        return dead

    case = ending.case
    assert case is not None, (ending.kind, text)
    kinds = {PROVED: ("deadlock",), EITHER: ("deadlock", "suspected")}
    assert ending.kind in kinds.get(program.answer, ("suspected",)), (case.doubts, text)
    if program.stuck is not None:
        stuck = program.stuck(n)
        assert stuck <= set(case.stuck) <= stuck | program.perhaps(n), text
    if program.line is not None:
        assert f"In[7], line {program.line}" in text, text
    if ending.kind == "deadlock":
        assert not case.doubts
    else:
        assert case.doubts
        for pattern in program.doubts:
            assert any(re.search(pattern, doubt) for doubt in case.doubts), (pattern, case.doubts)
        if isinstance(finished.error, Deadlock):
            assert all(doubt in text for doubt in case.doubts), (case.doubts, text)
    return []


def check_and_kept(lab, program: Program) -> None:
    """Run a program; afterwards each rank that lives has its variables, and what the program left
    running is ended."""
    replaced: list[int] = []
    try:
        replaced = check(lab, program)
    finally:
        if not inside(lab).cluster.busy_ranks():  # else one more cell would wait behind it
            if program.after:
                run_cell(lab, program.after)
            alive = results(run_cell(lab, "globals().get('marker')"))
            kept = [alive[rank] for rank in range(len(lab)) if rank not in replaced]
            assert kept == [repr(program.name)] * len(kept)


def in_step(lab) -> None:
    """Check that the ranks are in step and in one group."""
    n = len(lab)
    assert results(run_cell(lab, SUM)) == [str(n * (n + 1) / 2)] * n


def table(programs):
    """Run a test for every program."""
    return pytest.mark.parametrize("program", programs, ids=lambda p: p.name)


@table(deadlocks.PROGRAMS)
def test_a_deadlock_is_named_and_survived(lab, program):
    if len(lab) not in program.sizes:
        pytest.skip(f"not on {len(lab)} ranks")
    check_and_kept(lab, program)
    in_step(lab)


@table(deadlocks.JOINING)
def test_ranks_that_never_meet_are_named_and_survived(lab_without_group, program, tmp_path):
    lab = lab_without_group
    if len(lab) not in program.sizes:
        pytest.skip(f"not on {len(lab)} ranks")

    lab["port"], lab["path"] = free_port(), str(tmp_path / "store")
    check_and_kept(lab, program)
    lab["port"] = free_port()
    run_cell(lab, JOIN)
    in_step(lab)
    run_cell(lab, "dist.destroy_process_group()")


@pytest.mark.parametrize("size", [2, 4])
@table(deadlocks.REMOTE)
def test_a_wait_of_rpc_is_named_and_survived(program, size, tmp_path):
    with labkit.start(size) as lab:
        lab["path"] = str(tmp_path / "store")
        check_and_kept(lab, program)
        in_step(lab)


@pytest.mark.parametrize("size", [2, 4])
def test_a_recorder_that_is_switched_off_is_the_reason_of_a_suspicion(size, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    program = Program(
        "the recorder is off and a rank skips",
        """
        if rank:
            dist.all_reduce(torch.ones(1))
        """,
        deadlocks.but(0),
        3,
        ("rank 0", "TORCH_FR_BUFFER_SIZE"),
        deadlocks.SUSPECTED,
        ("TORCH_FR_BUFFER_SIZE",),
    )
    with labkit.start(size) as lab:
        check_and_kept(lab, program)
        in_step(lab)


def test_the_table_is_large_and_its_names_differ():
    every = [*deadlocks.PROGRAMS, *deadlocks.JOINING, *deadlocks.REMOTE]
    assert len({p.name for p in every}) == len(every) >= 55
    assert all(issubclass(e, RankError) for p in every for e in p.errors)
