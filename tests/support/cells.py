"""Run cells on a lab's ranks as ``%%px`` does, and look inside a lab."""

from __future__ import annotations

from collections.abc import Sequence

import labkit
from labkit.notebook.lab import session_of
from labkit.runtime import request
from labkit.runtime.session import Session


def run_cell(lab: labkit.Lab, code: str, ranks: Sequence[int] | None = None) -> None:
    """Run a cell on some ranks (all if None), as ``%%px`` does; raise what it raises."""
    pending = request.cell(inside(lab).group, lab.check_ranks(ranks), code)
    pending.wait()
    pending.raise_errors(pending.outcomes())


def inside(lab: labkit.Lab) -> Session:
    """Return the ranks of a lab (``.cluster``) and their process group (``.group``)."""
    return session_of(lab)
