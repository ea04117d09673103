"""Judge every recorded situation: who is stuck, how surely, where, and what the message says.

The recordings are of real ranks (``make record``); what the tables of programs expect of a live run
is expected of its recording too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from labkit import Deadlock
from labkit.deadlock.message import message_lines, suspicion
from labkit.deadlock.wait_graph import judge
from tests.ranks import test_faults, test_tables_on_fake_nccl
from tests.support import deadlocks
from tests.support.situations import FOLDER, OutdatedError, Recording, read


@dataclass(frozen=True)
class Expected:
    """What a row of a table expects, the same for every table."""

    stuck: Callable[[int], set[int]] | None
    perhaps: Callable[[int], set[int]]
    line: int | None
    says: tuple[str, ...]
    doubts: tuple[str, ...]
    answers: tuple[str, ...]  #: "proved", "suspected"


TABLE, ALONE_IN_A_LAB = deadlocks.PROGRAMS, [*deadlocks.JOINING, *deadlocks.REMOTE]
ANSWERS = {deadlocks.PROVED: ("proved",), deadlocks.EITHER: ("proved", "suspected")}


def expected() -> dict[tuple[bool, str], Expected]:
    """Return what each row expects, by whether it is on the fake NCCL, and its name."""
    found = {}
    for fake in (False, True):
        semantics = test_tables_on_fake_nccl.SEMANTICS if fake else {}
        for program in [*test_faults.FAULTS, *TABLE, *ALONE_IN_A_LAB]:
            changes = semantics[program.name].changes if program.name in semantics else {}
            row = {**vars(program), **changes}
            answers = ANSWERS.get(row["answer"], ("suspected",))
            says = row["says"] if row["errors"] == (Deadlock,) else ()
            found[fake, program.name] = Expected(
                row["stuck"], row["perhaps"], row["line"], says, row["doubts"], answers
            )
    return found


EXPECTED = expected()


FAKE = "tables_on_fake_nccl.jsonl"
DEADLOCKS = ("faults.jsonl", "deadlock_programs.jsonl", FAKE)
CORRECT = ("correct_programs.jsonl", FAKE)


def recordings(*names: str) -> Iterator[tuple[str, bool, Recording]]:
    """Yield the recordings of files, each with its title, and whether it is of the fake NCCL."""
    for name in names:
        for recording in read(FOLDER / name):
            where = "fake NCCL" if name == FAKE else "gloo"
            yield f"{where}, {recording.ranks} ranks, {recording.program}", name == FAKE, recording


def complaints(recording: Recording, row: Expected) -> list[str]:
    """Return the differences between what is judged of a recording and what its row expects."""
    n = recording.ranks
    verdict = judge(recording.judged[-1])
    answer = "proved" if verdict.proved else "suspected" if verdict.suspected else "nobody"
    if answer not in row.answers:
        return [f"{answer}, not {' or '.join(row.answers)}"]
    case = recording.case(verdict)
    wrong = []
    if row.stuck is not None:
        least, most = row.stuck(n), row.stuck(n) | row.perhaps(n)
        if not least <= case.stuck <= most:
            wrong.append(f"{sorted(case.stuck)} are stuck, not {sorted(least)}")
    text = "\n".join(suspicion(case) if case.doubts else message_lines(case))
    if row.line is not None and f"In[7], line {row.line}" not in text:
        wrong.append(f"line {row.line} is not named:\n{text}")
    wrong += [f"{p!r} is not said:\n{text}" for p in row.says if not re.search(p, text, re.M)]
    if case.doubts:
        wrong += [
            f"no doubt is {p!r}, but {case.doubts}"
            for p in row.doubts
            if not any(re.search(p, doubt) for doubt in case.doubts)
        ]
    return wrong


def test_each_recorded_deadlock_is_judged_as_its_table_says() -> None:
    wrong = [
        f"{title}: {text}"
        for title, fake, recording in recordings(*DEADLOCKS)
        if recording.seen is not None and (fake, recording.program) in EXPECTED
        for text in complaints(recording, EXPECTED[fake, recording.program])
    ]
    assert wrong == []


def test_no_recorded_wait_of_a_correct_program_is_called_a_deadlock() -> None:
    wrong = [
        f"{title}: {sorted(verdict.proved)}"
        for title, _, recording in recordings(*CORRECT)
        if recording.seen is None
        for verdict in map(judge, recording.judged)
        if verdict.proved
    ]
    assert wrong == []


def test_each_deadlock_of_the_tables_is_recorded() -> None:
    """One that is not would be judged by its live run alone, once in eight commits."""
    every = list(recordings(*DEADLOCKS))
    found = {(fake, r.program, r.ranks) for _, fake, r in every if r.seen is not None}
    fake_rows = test_tables_on_fake_nccl
    left_out = {*fake_rows.LEFT_OUT, *fake_rows.ENDING}
    left_out |= {row.name for row in ALONE_IN_A_LAB}  # these never come as far as a device
    missing = [
        f"{'fake NCCL' if fake else 'gloo'}, {n} ranks, {row.name}: run make record"
        for row in [*test_faults.FAULTS, *TABLE, *ALONE_IN_A_LAB]
        for fake in (False, True)
        for n in row.sizes
        if row.errors == (Deadlock,)
        and not (fake and row.name in left_out)
        and (fake, row.name, n) not in found
    ]
    assert missing == []
    gone = [t for t, fake, r in every if r.seen is not None and (fake, r.program) not in EXPECTED]
    assert gone == [], "no table has these: take their lines out"


def test_a_wrong_verdict_a_wrong_rank_and_a_wrong_line_are_noticed() -> None:
    recording = next(r for _, _, r in recordings("faults.jsonl") if "skips all_reduce" in r.program)
    row = EXPECTED[False, recording.program]
    assert complaints(recording, row) == []
    assert complaints(recording, replace(row, answers=("suspected",)))
    assert complaints(recording, replace(row, stuck=lambda n: {0}))
    assert complaints(recording, replace(row, line=99))
    assert complaints(recording, replace(row, says=("another cause",)))


def test_a_recording_of_another_protocol_is_refused_in_one_sentence(tmp_path: Path) -> None:
    line = (FOLDER / "faults.jsonl").read_text().splitlines()[0]
    path = tmp_path / "faults.jsonl"
    path.write_text(line.replace('"stamp"', '"mark"'))
    with pytest.raises(OutdatedError, match=r"^faults.jsonl was recorded .*: run make record\.$"):
        read(path)
