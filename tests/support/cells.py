"""Run cells on a lab's ranks as ``%%px`` does, and look inside a lab."""

from __future__ import annotations

import re
from collections.abc import Sequence

import labkit
from labkit.notebook.lab import session_of
from labkit.runtime import request
from labkit.runtime.follow import Finished, finish, follow
from labkit.runtime.request import Request
from labkit.runtime.session import Session
from labkit.wire.state import Outcome

#: A test hangs no longer than this where a deadlock is only suspected.
SUSPECT_SECONDS = 60.0
OWN = re.compile(r"UserWarning(?! \(\S+\.py:)")


def run_cell(lab: labkit.Lab, code: str, ranks: Sequence[int] | None = None) -> list[Outcome]:
    """Run a cell on some ranks (all if None), as ``%%px`` does; raise what it raises."""
    sent = send_cell(lab, code, ranks)
    return finish(sent, follow(sent, suspect=SUSPECT_SECONDS)).outcomes


def send_cell(lab: labkit.Lab, code: str, ranks: Sequence[int] | None = None) -> Request:
    """Send a cell to some ranks (all if None) and return at once."""
    chosen = lab.check_ranks(None) if ranks is None else list(ranks)
    return request.cell(inside(lab).group, chosen, code)


def finish_cell(sent: Request, suspect: float = SUSPECT_SECONDS) -> Finished:
    """Wait for a cell; what went wrong is in ``error``, not raised.

    A deadlock that is suspected for ``suspect`` seconds ends it too.
    """
    return finish(sent, follow(sent, suspect=suspect), tolerate=True)


def watch_cell(sent: Request, timeout: float) -> Finished:
    """Wait for a cell as where somebody looks on: what is suspected goes on, ``timeout`` seconds
    at most; raise what it raises."""
    return finish(sent, follow(sent, timeout=timeout))


def results(outcomes: Sequence[Outcome]) -> list[str | None]:
    """Return what each rank's last expression shows, None where there is none."""
    return [o.result["data"]["text/plain"] if o.result else None for o in outcomes]


def warnings(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what labkit has warned of beneath a cell, each sentence once; a warning of torch's
    names a file of torch's."""
    lines = [line for o in outcomes for line in o.stderr.splitlines()]
    return list(dict.fromkeys(line for line in lines if OWN.match(line)))


def restored(lab: labkit.Lab) -> labkit.Lab:
    """Return a lab, with fresh ranks where a test has left one dead or busy."""
    if inside(lab).cluster.deaths or inside(lab).cluster.busy_ranks():
        lab.restart()
    return lab


def inside(lab: labkit.Lab) -> Session:
    """Return the ranks of a lab (``.cluster``) and their process group (``.group``)."""
    return session_of(lab)
