"""The tables of faults, deadlocks and correct programs hold where calls return at once, as NCCL's.

They run on gloo with the semantics of NCCL (``tests.support.fake_nccl``), which proves nothing
about NCCL itself: it shows that labkit names the same ranks with the same certainty where a call
is only given to a device. What differs by these semantics stands in ``SEMANTICS``, ``ENDING`` and
``LEFT_OUT``, each with its reason. Programs that never form a group, and those of RPC, do not come
as far as a device. Of the correct programs every third is run, by turns on two and on four ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

import labkit
from tests.ranks import test_correct_programs as correct
from tests.ranks import test_deadlock_programs as deadlocked
from tests.ranks import test_faults as faults
from tests.ranks.test_faults import CONDITION, SEND_FIRST
from tests.support import deadlocks
from tests.support.cells import finish_cell, restored, run_cell, send_cell
from tests.support.correct_programs.program import Program as Correct
from tests.support.on_fake_nccl import start_on_fake_nccl

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("alarmed")]


@dataclasses.dataclass(frozen=True)
class Manner:
    """What is otherwise in a row, and why."""

    why: str
    changes: dict[str, Any]


def told(why: str, **changes: Any) -> Manner:
    """Replace some fields of a row."""
    return Manner(why, changes)


CAUSE = "labkit names the call that the device waits for, not yet what loops lack"
VIA = "the work is torch's own; what it was made for is on no stack any more"
ISSUED = "wait() returns at once, so the line is that of the call that was issued"
PLACE = "the thread that made the call has ended, and it had no frame of the cell's"
USED = "the message's tensor is used again, so the next call waits for it, before it is made"
CELL = "a cell ends when all that it has given to the device is done"

#: By the row's name.
SEMANTICS = {
    # -- faults
    "a thread receives while the main thread reduces": told(PLACE, line=None),
    "a rank names another group on the same line": told(
        CAUSE, says=("rank 0, which has ended", r"all_reduce \(float32 \[1\]")
    ),
    "a rank skips all_gather_object": told(VIA, says=(CONDITION, r"all_gather \(int64 \[1\]")),
    "the source skips broadcast_object_list": told(
        VIA, says=(CONDITION, r"broadcast \(int64 \[1\]")
    ),
    "a loop is shorter on one rank": told(CAUSE, says=("rank 0, which has ended", "all_reduce")),
    "both send first": told(USED, says=(SEND_FIRST, r"send to rank 1, started at In\[7\], line 4")),
    "both receive first": told(
        USED,
        says=("waits to receive before it sends", r"recv from rank 1, started at In\[7\], line 4"),
    ),
    "a ring of sends": told(USED, says=(SEND_FIRST, r"send to rank 1, started at In\[7\], line 3")),
    "isend is waited for before the receive": told(
        USED,
        line=5,
        says=(SEND_FIRST, r"send to rank 1, started at In\[7\], line 3"),
    ),
    "an asynchronous all_reduce that one rank never starts": told(ISSUED, line=3),
    # -- deadlocks
    "tqdm's monitor runs on every rank": told(CAUSE, says=("rank 0, which has ended its cell",)),
    "an executor receives what nobody sends": told(PLACE, line=None),
    "a thread receives and the main thread joins it, on both sides": told(USED, line=7),
    "an executor's task starts a thread that reduces with a rank that does not": told(
        PLACE, line=None
    ),
    "a partner is missing in batch_isend_irecv": told(ISSUED, line=6),
    "a cached function makes the call only once": told(CAUSE, says=("for rank 0", "all_reduce")),
    "a handle of another cell is waited for": told(
        CELL,
        code=next(p.before for p in deadlocks.HANDLES if p.name.startswith("a handle of another")),
        before="",
        line=3,
        says=("rank 0, which has ended its cell", "all_reduce"),
    ),
    "a coalesced batch on some ranks": told(ISSUED, line=4),
}

KEPT = "what was given to the device is kept until it is done, also if its handle is dropped"
LATER = "a send that nobody waits for lets the program go on to what the other rank needs first"
#: Deadlocks of gloo's semantics that are none here: their cells end.
ENDING = {
    "the handle of isend is dropped and the receive comes late": KEPT,
    "the handle of irecv is dropped, and its message is in the way of the next call": KEPT,
    "the order of two tags differs": LATER,
    "a send before the barrier that the receiver passes first": LATER,
}

ANY = "NCCL has no receive from any rank; the fake NCCL leaves it to gloo, below a frame of its own"
EARLY = "the fake NCCL does not see that C++ looks at a tensor, which is not there yet"
LIMIT = "wait() returns at once; what a limit ends raises its error at the end of the cell"
#: Rows that say nothing here.
LEFT_OUT = {
    "nobody sends to one that takes from any": ANY,
    "everybody takes from anybody first": ANY,
    "a worker of a data loader lives on the rank that skips": (
        "labkit takes the loader's handler for SIGCHLD for the user's, on gloo too: this and all "
        "that comes after it on these ranks is only suspected"
    ),
    "a thread waits for a message before it sends the one that rank 0 waits for": (
        "in one stream the send comes after the receive that needs it: this hangs on NCCL too"
    ),
    "a callback of a collective's future sends": (
        "the fake NCCL's only thread of gloo runs the callback, which waits for that thread"
    ),
    "an RPC function makes the all_reduce of an idle rank": EARLY,
    "a gradient flows back through an all_reduce, one rank late": EARLY,
    "a wait for a message with a limit, which runs out": LIMIT,
    "a group's limit ends its all_reduce, which is survived": LIMIT,
    "two hundred works of two groups, waited for in another cell, one rank late": CELL,
    "an irecv of one cell is waited for in a third, the isend comes late in the second": CELL,
}


def rows(table: Any, argument: str) -> Any:
    """Run a test for every row that says something here, with what is otherwise in it."""
    marked = []
    for row in table:
        manner = SEMANTICS.get(row.name)
        changed = dataclasses.replace(row, **manner.changes) if manner else row
        if row.name not in LEFT_OUT and row.name not in ENDING:
            marked.append(pytest.param(changed, id=row.name))
    return pytest.mark.parametrize(argument, marked)


@pytest.fixture(scope="module", params=[2, 4])
def module_lab(request: pytest.FixtureRequest) -> Iterator[labkit.Lab]:
    with start_on_fake_nccl(request.param, preload=deadlocked.PRELOAD) as started:
        run_cell(started, deadlocked.WARM)
        yield started


@pytest.fixture
def lab(module_lab: labkit.Lab) -> labkit.Lab:
    return restored(module_lab)


@rows(faults.FAULTS, "fault")
def test_a_fault_is_named_and_survived(lab: labkit.Lab, fault: deadlocks.Program) -> None:
    faults.test_a_fault_is_named_and_survived(lab, fault)


@rows(deadlocks.PROGRAMS, "program")
def test_a_deadlock_is_named_and_survived(lab: labkit.Lab, program: deadlocks.Program) -> None:
    if len(lab) not in program.sizes:
        pytest.skip(f"not on {len(lab)} ranks")
    deadlocked.test_a_deadlock_is_named_and_survived(lab, program)


@pytest.mark.parametrize(
    "program", [p for p in deadlocks.PROGRAMS if p.name in ENDING], ids=lambda p: p.name
)
def test_a_deadlock_of_blocking_calls_ends(lab: labkit.Lab, program: deadlocks.Program) -> None:
    finished = finish_cell(send_cell(lab, program.cell))
    assert finished.error is None
    assert not finished.ending.kind
    deadlocked.in_step(lab)


CORRECT = [p for table in correct.TABLES for p in table.PROGRAMS if p.name not in LEFT_OUT][::3]


@pytest.mark.parametrize("program", CORRECT, ids=lambda p: p.name)
def test_a_correct_program_is_no_deadlock(lab: labkit.Lab, program: Correct) -> None:
    turn = program.sizes[CORRECT.index(program) % len(program.sizes)]
    if len(lab) != turn:
        pytest.skip(f"its turn is on {turn} ranks")
    with correct.left_alone(lab):
        correct.run_all(lab, program)
    if program.reset:
        lab.reset()


def test_every_reason_belongs_to_one_row() -> None:
    table = [*faults.FAULTS, *deadlocks.PROGRAMS]
    names = [row.name for row in [*table, *(p for t in correct.TABLES for p in t.PROGRAMS)]]
    reasons = [*SEMANTICS, *ENDING, *LEFT_OUT]
    assert len(set(reasons)) == len(reasons)
    assert set(reasons) <= set(names)
    for row in table:  # each says something that the row does not
        manner = SEMANTICS.get(row.name)
        for field, value in manner.changes.items() if manner else ():
            assert value != getattr(row, field), (row.name, field)
