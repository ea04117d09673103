"""Exercise 19-3: download once per node, and read when the file is complete."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import When, every_rank, some_rank
from ...trial_tools import sleepless
from .facts import MISSING, Facts

#: The file comes in two pieces, each after so many seconds.
PIECES = {"ten ": 0.3, "images": 0.9}
FETCHED, READ = "fetched on this node", "read"


def _place(rank: int, n: int) -> tuple[int, int]:
    """Return node and local rank of a rank on two nodes, one of which has one process; two ranks
    share one node. So only local rank 0 is on every node."""
    first = 1 if n > 2 else n
    return (0, rank) if rank < first else (1, rank - first)


def trial(answer: Callable[..., Any], here: Here) -> Facts:
    """Download on two nodes; say how often each fetched, and what this rank read."""
    rank = here.rank
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    sleep = time.sleep
    node, local = _place(rank, here.world_size)
    disk = Path(str(box[0]), f"node-{node}")
    calls = Path(str(box[0]), f"calls-{node}")
    try:
        disk.mkdir(exist_ok=True)
        calls.mkdir(exist_ok=True)

        def fetch(path: str) -> None:
            tempfile.mkstemp(dir=calls)
            for mode, (piece, seconds) in zip("wa", PIECES.items(), strict=True):
                sleep(seconds)
                with open(path, mode) as file:
                    file.write(piece)

        dist.barrier()
        path = str(disk / "images.txt")
        try:
            with sleepless():
                read = answer(path, fetch, local)
        except FileNotFoundError as error:  # any other error is told with its text and line
            if error.filename != path:
                raise
            read = MISSING
        dist.barrier()
        # Nothing is there where rank 0 has gone already, behind barriers that were for others.
        fetched = len(list(calls.glob("*")))
        dist.barrier()
    finally:
        if rank == 0:
            shutil.rmtree(str(box[0]), ignore_errors=True)
    return {FETCHED: fetched, READ: read.decode() if isinstance(read, bytes) else read}


def expected(n: int) -> list[Facts]:
    """Fetch once on each node, and read all of it everywhere."""
    return [{FETCHED: 1, READ: "".join(PIECES)}] * n


def _fetched(first: int, last: int) -> When:
    """Return the predicate of how often each node has fetched, the one of one process first."""
    return lambda yours, expected, n: (yours[0][FETCHED], yours[-1][FETCHED]) == (first, last)


EXERCISE = Exercise(
    id="19-3",
    title="Download once per node",
    answer="download_once",
    setup="""
        import os
        import time
    """,
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "Some processes wait in a barrier that others do not call. All of them have to call "
            "it: put it outside the if.",
            stuck=r"waits? in barrier",
        ),
        Mistake(
            "No process calls fetch(path).",
            when=every_rank(lambda mine, its: mine[FETCHED] == 0),
        ),
        Mistake(
            "One process fetches for all nodes, so the other node has no file. There is one rank "
            "0 in all, but a local rank 0 on every node.",
            when=_fetched(1, 0),
        ),
        Mistake(
            "On a node with one process nobody fetches: its local rank is 0, and only that one is "
            "on every node.",
            when=_fetched(0, 1),
        ),
        Mistake(
            "Several processes of a node fetch at once and write to the same file. One is "
            "enough: local rank 0. (Checking first whether the file exists does not help: at the "
            "start none of them sees one.)",
            when=some_rank(lambda mine, its: mine[FETCHED] > 1),
        ),
        Mistake(
            "Some processes read the file before it is complete. Let all of them call a barrier "
            "between fetching and reading: a download can take longer than any time.sleep.",
            when=some_rank(lambda mine, its: mine[READ] in (MISSING, "", *PIECES)),
        ),
        Mistake(
            "The file is there, but its text is not returned: return what you read.",
            when=some_rank(lambda mine, its: mine[READ] is None),
        ),
    ),
    hints=(
        "Three steps: one process of the node fetches, all wait, all read.",
        "local_rank == 0 is true for one process of each node. The barrier is for all.",
        "Only fetch(path) belongs under the if. After the barrier, every process opens path and "
        "returns read().",
    ),
)
