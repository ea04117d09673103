"""What runs on a GPU, in which order: plan A with any NCCL, plan B where ranks can share a GPU.

A piece is one row of the report. Pieces run one after the other, the most valuable first, each
within its own limit; what there is no time for is named. The limits are seconds on 16 cores, and
``--scale`` multiplies them where a machine has fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labkit.launch.placement import NCCL_SHARES_GPU

from .result import Step

DEADLOCKS = "tests/gpu/test_gpu_deadlocks.py"
TABLES = "tests/gpu/test_gpu_tables.py"
GLOO = "tests/gpu/test_gpu_gloo.py"
#: Files with a piece of their own; every other file with tests marked gpu belongs to ``one-rank``.
OWN_PIECE = (DEADLOCKS, TABLES, GLOO)
#: Notebooks that come first: they use the group most.
FIRST = ("00", "02", "07", "08", "11")


@dataclass(frozen=True)
class Piece:
    """One row of the report.

    Attributes
    ----------
    key
        How it is called in commands, and in the report.
    kind
        "tests" runs pytest, "course" runs notebooks, "program" a module that answers in JSON.
    seconds
        How long it may take, on 16 cores.
    what
        Files of tests (none: all that have no piece of their own), beginnings of notebooks (none:
        all but ``FIRST``), or the module of this package with its arguments.
    ranks
        How many ranks share the work; 0 where the tests choose.
    needs_nccl
        Whether NCCL has to serve so many ranks on the GPUs that there are.
    """

    key: str
    kind: Literal["tests", "course", "program"]
    seconds: float
    what: tuple[str, ...] = ()
    ranks: int = 0
    needs_nccl: bool = False

    def check_nccl(self, machine: Mapping[str, Any]) -> str | None:
        """Return why NCCL cannot serve this piece on a machine; None if it can, or need not."""
        if not self.needs_nccl or shares_gpu(machine) or len(machine["gpus"]) >= self.ranks:
            return None
        needed = ".".join(map(str, NCCL_SHARES_GPU))
        return (
            f"this NCCL ({machine['nccl'] or 'none'}) serves one rank per GPU; {needed} is needed"
        )


def figure(name: str, seconds: float, ranks: int = 1) -> Piece:
    """Return the piece that measures one figure on so many ranks."""
    return Piece(f"{name}-{ranks}", "program", seconds, ("figures", name, str(ranks)), ranks)


PROBES = (
    Piece("probe-2", "program", 40, ("probe", "2"), 2, needs_nccl=True),
    Piece("probe-4", "program", 30, ("probe", "4"), 4, needs_nccl=True),
)
DEADLOCKS_2 = Piece("deadlocks-2", "tests", 75, (DEADLOCKS, "-k", "2ranks"), 2, needs_nccl=True)
DEADLOCKS_4 = Piece("deadlocks-4", "tests", 60, (DEADLOCKS, "-k", "4ranks"), 4, needs_nccl=True)
TABLES_2 = Piece("tables-2", "tests", 90, (TABLES,), 2, needs_nccl=True)
ONE_RANK = Piece("one-rank", "tests", 90)
GLOO_TESTS = Piece("gloo", "tests", 45, (GLOO,))
COURSE_1 = Piece("course-1", "course", 60, FIRST, 1)
COURSE_4 = Piece("course-4", "course", 75, FIRST, 4)
REST_1 = Piece("rest-1", "course", 120, (), 1)
REST_4 = Piece("rest-4", "course", 150, (), 4)
#: What notebooks wait for.
WANTED = (figure("precision", 30), figure("overlap", 30, 2))
FIGURES = (
    figure("start", 30),
    figure("start", 40, 4),
    figure("train", 40),
    figure("bandwidth", 30),
    figure("overlap", 30),
    figure("bandwidth", 30, 4),
)

PLANS = {
    "a": (ONE_RANK, *WANTED, COURSE_1, COURSE_4, GLOO_TESTS, *FIGURES, REST_1, REST_4),
    "b": (*PROBES, DEADLOCKS_2, *WANTED, DEADLOCKS_4, TABLES_2, ONE_RANK, COURSE_4, COURSE_1,
          *FIGURES, REST_4, REST_1),
}  # fmt: skip
PIECES = {piece.key: piece for plan in PLANS.values() for piece in plan}


def shares_gpu(machine: Mapping[str, Any]) -> bool:
    """Return whether the NCCL of a machine lets several ranks share a GPU."""
    nccl = machine["nccl"]
    return bool(nccl) and tuple(map(int, nccl.split(".")[:2])) >= NCCL_SHARES_GPU


def plan_for(machine: Mapping[str, Any]) -> str:
    """Return the plan of a machine: "b" where NCCL can serve two ranks, else "a"."""
    return "b" if shares_gpu(machine) or len(machine["gpus"]) > 1 else "a"


def cannot_share(steps: Sequence[Step]) -> bool:
    """Return whether two plain processes failed to share a GPU."""
    return any(step.name == PROBES[0].key and step.state == "failed" for step in steps)


def check_probes(piece: Piece, steps: Sequence[Step]) -> str | None:
    """Return why a piece has too many ranks, by the probes so far; None if it has not."""
    if cannot_share(steps):  # plan a: gloo serves them
        return None
    failed = {probe.ranks for probe in PROBES for step in steps
              if step.name == probe.key and step.state == "failed"}  # fmt: skip
    if piece.ranks in failed:
        return f"NCCL itself fails on {piece.ranks} ranks here (probe-{piece.ranks})"
    return None


def chosen(plan: str, keys: Sequence[str] = (), done: Iterable[str] = ()) -> list[Piece]:
    """Return the pieces to run: those of a plan, or the ones that are named, without ``done``.

    Raises
    ------
    ValueError
        If there is no piece of a name; it lists the names.
    """
    if unknown := [key for key in keys if key not in PIECES]:
        raise ValueError(f"There is no piece {unknown[0]}; there are {', '.join(PIECES)}.")
    left_out = set(done)
    pieces = [PIECES[key] for key in keys] if keys else list(PLANS[plan])
    return [piece for piece in pieces if piece.key not in left_out]
