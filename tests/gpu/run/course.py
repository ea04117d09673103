"""Run the course's notebooks by ``labkit run`` and compare what they show."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event

import nbformat

from tests.support.compare import Comparison, compare
from tests.support.conda_versions import ROOT

from . import children
from .budget import Budget
from .plan import FIRST
from .result import STOPPED, TIME_OVER, Item, State, Step

#: The number of ranks whose outputs are stored in the notebooks.
STORED_RANKS = 4
#: Seconds for one cell and for one notebook.
CELL_SECONDS, NOTEBOOK_SECONDS = 60.0, 120.0
#: Seconds that there must be left to begin with a notebook.
LEAST = 25.0
#: Lines of a log that tell why a notebook failed, failures that are told of one.
LINES, MOST = 12, 3


def notebooks(asked: Sequence[str] = ()) -> list[Path]:
    """List the notebooks whose names begin with one of ``asked``; without it, those that do not
    come first."""
    found = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    if not asked:
        return [path for path in found if not path.name.startswith(FIRST)]
    return [path for path in found if path.name.startswith(tuple(asked))]


def run_course(
    name: str,
    ranks: int,
    paths: Sequence[Path],
    *,
    budget: Budget,
    folder: Path,
    env: Mapping[str, str],
    seconds: float = float("inf"),
    scale: float = 1.0,
    jobs: int = 1,
    against: Path | None = None,
    stop: Event | None = None,
) -> Step:
    """Run notebooks with ``ranks`` ranks, ``jobs`` of them at a time, ``seconds`` at most.

    ``scale`` multiplies the limits of a cell and a notebook.

    Executed copies go to ``folder/notebooks``, what ``labkit run`` said to ``folder/logs``. They
    are compared with the copies in ``against``, another run's folder, where there are some, else
    with what is stored, which is of four ranks. A notebook goes on after a cell that fails, and
    passes if each cell was reached and none failed that does not fail in the other copy too.
    """
    began = time.monotonic()
    for part in ("notebooks", "logs"):
        (folder / part).mkdir(parents=True, exist_ok=True)

    def one(path: Path) -> Item:
        if stop is not None and stop.is_set():
            return Item(path.stem, "not run", why=STOPPED)
        left = min(budget.left(), began + seconds - time.monotonic())
        if left < LEAST * scale:
            return Item(path.stem, "not run", why=TIME_OVER)
        return _run(path, ranks, left, scale, folder, env, against, stop)

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        items = list(pool.map(one, paths))
    step = Step(name, items, time.monotonic() - began)
    if all(item.state == "not run" for item in items):
        step.why = items[0].why if items else "there are no such notebooks"
    return step


def _run(
    path: Path,
    ranks: int,
    left: float,
    scale: float,
    folder: Path,
    env: Mapping[str, str],
    against: Path | None,
    stop: Event | None,
) -> Item:
    name = f"{path.stem}.{ranks}"
    executed, log = folder / "notebooks" / f"{name}.ipynb", folder / "logs" / f"{name}.log"
    executed.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "labkit", "run", str(path), "--output", str(executed)]
    most = NOTEBOOK_SECONDS * scale
    command += ["--ranks", str(ranks), "--timeout", f"{CELL_SECONDS * scale:g}", "--keep-going"]
    seconds = min(most, left)
    ended = children.run(command, seconds=seconds, log=log, env=env, stop=stop)
    comparison, more = None, {}
    if executed.exists():
        other, origin = _reference(path, name, against)
        comparison = compare(other, nbformat.read(executed, as_version=4))
        if origin == "stored" and ranks != STORED_RANKS:
            # Cells that name rank 3 fail, and most show something else: that says nothing.
            origin = f"nothing: no run on {ranks} rank{'s' * (ranks > 1)} is there"
            comparison = replace(comparison, compared=0, failed=(), differences=())
        more = {"against": origin, **asdict(comparison)}
    if ended.by == "stop" or (ended.by == "time" and seconds < most):  # that says nothing of it
        why = STOPPED if ended.by == "stop" else TIME_OVER
        return Item(path.stem, "not run", round(ended.seconds, 1), why, more)
    whys = [f"It was ended: it took over {seconds:.0f} s."] if ended.by == "time" else []
    whys += _failures(comparison, ended.code, log)
    whys += [f"It left behind: {command}" for command in ended.left]
    state: State = "failed" if whys else "passed"
    return Item(path.stem, state, round(ended.seconds, 1), "\n".join(whys), more)


def _failures(comparison: Comparison | None, code: int, log: Path) -> list[str]:
    """Return what failed in a notebook, nothing if all is as it should be."""
    said = log.read_text(errors="replace").strip().splitlines()[-LINES:]
    if comparison is None:
        return ["There is no executed copy.", *said]
    failed = comparison.failed
    whys = [f"Cell {one.cell}: {one.error.splitlines()[0]}" for one in failed[:MOST]]
    if len(failed) > MOST:
        rest = ", ".join(str(one.cell) for one in failed[MOST:])
        whys.append(f"More cells failed: {rest}.")
    if comparison.reached < comparison.cells:
        whys += [f"It ended at cell {comparison.reached} of {comparison.cells}.", *said]
    elif code not in (0, 1):
        whys += [f"labkit run ended with {code}.", *said]
    return whys


def _reference(path: Path, name: str, against: Path | None) -> tuple[nbformat.NotebookNode, str]:
    """Return the notebook to compare with, and a word for where it comes from."""
    if against is not None:
        for other in (against / f"{name}.ipynb", against / "notebooks" / f"{name}.ipynb"):
            if other.exists():
                return nbformat.read(other, as_version=4), str(against)
    return nbformat.read(path, as_version=4), "stored"
