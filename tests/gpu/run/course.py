"""Run the course's notebooks by ``labkit run`` and compare what they show."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Event

import nbformat

from tests.support.compare import Comparison, compare
from tests.support.conda_versions import ROOT

from . import children
from .budget import Budget
from .result import STOPPED, TIME_OVER, Item, State, Step

#: What is to be seen first on a GPU.
FIRST = ("00", "02", "06", "07", "10")
#: Seconds for one cell and for one notebook.
CELL_SECONDS, NOTEBOOK_SECONDS = 90.0, 150.0
#: Seconds that there must be left to begin with a notebook.
LEAST = 15.0
#: Lines of a log that tell why a notebook failed, failures that are told of one.
LINES, MOST = 12, 3


def notebooks(asked: Sequence[str] = ()) -> list[Path]:
    """List the notebooks whose names begin with one of ``asked``; without it, all."""
    found = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    chosen = [path for path in found if not asked or path.name.startswith(tuple(asked))]
    return sorted(chosen, key=lambda path: path.name.partition("_")[0] not in FIRST)


def run_course(
    ranks: int,
    paths: Sequence[Path],
    *,
    budget: Budget,
    folder: Path,
    env: Mapping[str, str],
    jobs: int = 1,
    against: Path | None = None,
    stop: Event | None = None,
) -> Step:
    """Run notebooks with ``ranks`` ranks, ``jobs`` of them at a time.

    Executed copies go to ``folder/notebooks``, what ``labkit run`` said to ``folder/logs``. They
    are compared with the copies in ``against``, another run's folder, where there are some, else
    with what is stored. A notebook goes on behind a cell that fails, and passes if each cell was
    reached and none failed that does not fail in the other copy too.
    """
    began = time.monotonic()
    for name in ("notebooks", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)

    def one(path: Path) -> Item:
        if stop is not None and stop.is_set():
            return Item(path.stem, "not run", why=STOPPED)
        if budget.left() < LEAST:
            return Item(path.stem, "not run", why=TIME_OVER)
        return _run(path, ranks, budget, folder, env, against, stop)

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        items = list(pool.map(one, paths))
    unit = "rank" if ranks == 1 else "ranks"
    step = Step(f"course, {ranks} {unit}", items, time.monotonic() - began)
    if all(item.state == "not run" for item in items):
        step.why = items[0].why if items else "there are no such notebooks"
    return step


def _run(
    path: Path,
    ranks: int,
    budget: Budget,
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
    command += ["--ranks", str(ranks), "--timeout", f"{CELL_SECONDS:g}", "--keep-going"]
    seconds = min(NOTEBOOK_SECONDS, budget.left())
    ended = children.run(command, seconds=seconds, log=log, env=env, stop=stop)
    comparison, more = None, {}
    if executed.exists():
        other, origin = _reference(path, name, against)
        comparison = compare(other, nbformat.read(executed, as_version=4))
        more = {"against": origin, **asdict(comparison)}
    limit = f"it took over {seconds:.0f} s" if seconds == NOTEBOOK_SECONDS else TIME_OVER
    whys = {"itself": [], "stop": ["It was stopped."]}.get(ended.by, [f"It was ended: {limit}."])
    whys += _failures(comparison, ended.code, log)
    whys += [f"It left behind: {command}" for command in ended.left]
    state: State = "failed" if whys else "passed"
    return Item(path.stem, state, round(ended.seconds, 1), "\n".join(whys), more)


def _failures(comparison: Comparison | None, code: int, log: Path) -> list[str]:
    """Say what failed in a notebook, nothing if all is as it should be."""
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
