"""What labkit was seen to say of a program, in a form that two runs can be compared by.

On a GPU each program of the tables leaves one; ``tests.gpu.record`` keeps those that differ from
what the fake NCCL shows, and ``tests/gpu/test_seen_on_nccl.py`` asks the fake for the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import labkit
from labkit.runtime.follow import Finished
from tests.support.cells import finish_cell, run_cell, send_cell

#: What was seen on real NCCL and is not what the fake one showed.
SEEN = Path(__file__).resolve().parents[1] / "gpu" / "seen.json"
#: Seconds that a suspicion may last before it ends a cell.
SUSPECT = 3.0
#: pytest's ``record_property``.
Record = Callable[[str, object], None]


@dataclass(frozen=True)
class Observed:
    """How a cell ended.

    Attributes
    ----------
    ending
        What ended it: "deadlock", "suspected", "died", "error", "interrupted"; "" if it just ended.
    error
        The name of the error's type, "" if there was none.
    stuck
        The ranks that block forever.
    lines
        The lines of the cell that the message names.
    message
        The first lines of the message, to be read; not compared.
    """

    ending: str
    error: str
    stuck: tuple[int, ...]
    lines: tuple[int, ...]
    message: str = ""

    @classmethod
    def of(cls, finished: Finished) -> Observed:
        """Return what is to be seen of a cell that has ended."""
        case, text = finished.ending.case, str(finished.error or "")
        return cls(
            finished.ending.kind or "",
            type(finished.error).__name__ if finished.error is not None else "",
            tuple(sorted(case.stuck)) if case is not None else (),
            tuple(sorted({int(n) for n in re.findall(r"In\[7\], line (\d+)", text)})),
            "\n".join(text.splitlines()[:6])[:600],
        )

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Observed:
        """Return what ``to_dict`` was made of."""
        tuples = {name: tuple(value[name]) for name in ("stuck", "lines")}
        return cls(value["ending"], value["error"], message=value.get("message", ""), **tuples)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    def compared(self) -> tuple[object, ...]:
        """Return what has to be the same in two runs."""
        return self.ending, self.error, self.stuck, self.lines


def observe(
    lab: labkit.Lab,
    record: Record,
    cell: str,
    before: str = "",
    ranks: list[int] | None = None,
) -> Finished:
    """Run a cell on some ranks (all if None), after another one; record what is to be seen."""
    finished = run(lab, cell, before, ranks)
    asked = {"cell": cell, "before": before, "asked": ranks, "ranks": len(lab)}
    record("observed", {**asked, **Observed.of(finished).to_dict()})
    return finished


def replay(lab: labkit.Lab, row: dict[str, Any]) -> Observed:
    """Run what ``observe`` has recorded; return what is to be seen now."""
    return Observed.of(run(lab, row["cell"], row["before"], row["asked"]))


def run(lab: labkit.Lab, cell: str, before: str, ranks: list[int] | None) -> Finished:
    """Run a cell on some ranks, after another one."""
    if before:
        run_cell(lab, before)
    return finish_cell(send_cell(lab, cell, ranks), suspect=SUSPECT)
