"""Tell which interrupted ranks compute in C code, or import a library: the interrupt reaches them
when that is over only. The others have it already, and are on their way back. And where C code has
crashed a rank."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from .. import times
from ..rank_names import fold, label
from ..wire import python_threads, stack_file
from ..wire.stack_file import Frame
from .cluster import RankCluster

#: Begin the file names of the learner's code, beside ipykernel's.
OWN = ("In[", "<ipython-input")


def places(cluster: RankCluster, ranks: Sequence[int]) -> dict[int, str]:
    """Say by rank where those interrupted ones stand whose Python has not seen the interrupt.

    Those that run elsewhere, and those whose process is stopped, are left out.
    """
    folder = cluster.launcher.record_folder()
    if not folder or stack_file.SIGNAL is None:
        return {}
    paths = {r: stack_file.path_of(folder, cluster.places[r].pid) for r in ranks}
    # One that writes no such file would not survive the signal.
    there = [r for r, path in paths.items() if os.path.exists(path)]
    asked = [r for r in there if cluster.signal(r, stack_file.SIGNAL)]
    deadline = cluster.clock.now() + times.STACK_WRITTEN.seconds()
    in_c: dict[int, str] = {}
    while asked and cluster.clock.now() < deadline:
        cluster.clock.sleep(times.STACK_LOOK)
        for rank in list(asked):
            frames, seen = stack_file.read(paths[rank])
            if seen or frames:
                asked.remove(rank)
            if frames and not seen:
                in_c[rank] = describe(frames)
    return in_c


def crashed(cluster: RankCluster, dead: Iterable[int]) -> str:
    """Say where C code has crashed ranks, of those of the dead that were on this host."""
    if not (folder := cluster.launcher.record_folder()):
        return ""
    where: dict[int, str] = {}
    for rank in dead:
        if -(cluster.deaths[rank] or 0) not in stack_file.CRASHES:
            continue
        path = stack_file.path_of(folder, cluster.places[rank].pid)
        if frames := stack_file.read_crash(path):
            where[rank] = describe(frames)
    said = "; ".join(f"{label(ranks)} crashed in {place}" for ranks, place in fold(where))
    return f"{said[0].upper()}{said[1:]}." if said else ""


def describe(frames: Sequence[Frame]) -> str:
    """Name the place of a stack: ``re.match, In[3], line 2``.

    The function is the innermost one of Python, which C code was called from; if that is the cell
    itself, there is none to name.
    """
    cells = [f for f in frames if f.filename.startswith(OWN) or "/ipykernel_" in f.filename]
    parts = []
    if any(f.filename.startswith(python_threads.IMPORTING) for f in frames):
        parts.append("import")
    elif frames[0] not in cells[:1]:
        path = PurePath(frames[0].filename)
        module = path.parent.name if path.stem == "__init__" else path.stem
        parts.append(f"{module}.{frames[0].function}")
    for cell in cells[:1]:
        if cell.filename.startswith("In["):
            parts.append(cell.filename)
        elif cell.function != "<module>":
            parts.append(cell.function)
        parts.append(f"line {cell.line}")
    return ", ".join(parts)
