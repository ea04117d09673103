"""Be torchrun: its own parser and its own ``run``, for a notebook that looks on.

Runs as ``python -m labkit.rank.torchrun.agent FOLDER WORDS...``, where the console script
``torchrun`` would call the same two functions with WORDS. Where WORDS ask for nothing else, one
node keeps to the loopback interface, shares its cores among the workers, and each worker writes
into files of its own in FOLDER. What torchrun makes of it stands in ``report.json`` there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import sys
from pathlib import Path

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from ...guard import torch_internals as guard
from ...wire.processes import count_cores, leave
from ...wire.protocol import CELL, LOGS, REPORT, SCRIPT, SOCKET, WORKERS
from ..process_group import loopback_only
from . import fork, worker

#: Sets the level of torchrun's own log; unset, nothing of it is shown here.
LOG_LEVEL = "LOGLEVEL"
LOOPBACK = "127.0.0.1"


class Refused(Exception):
    """torchrun cannot run this command line; the reason."""


def main(argv: list[str]) -> int:
    folder, words = Path(argv[0]), argv[1:]
    report: dict[str, object] = {}
    code = 1
    try:
        args = read(words, folder / SCRIPT)
        report["own_way"] = logs_its_own_way(args)
        prepare(args, folder)
        torchrun.run(args)
        code = 0
    except Refused as error:
        report["refused"] = str(error)
        code = 2
    except ChildFailedError as error:
        report["failures"] = {rank: f.exitcode for rank, f in error.failures.items()}
    finally:
        (folder / REPORT).write_text(json.dumps(report))
    return code


def read(words: list[str], cell: Path) -> argparse.Namespace:
    """Read a command line with torchrun's parser.

    Parameters
    ----------
    words
        The command line. Where there is a ``cell``, it names no script: what follows a word
        ``--`` are the arguments of the cell's.
    cell
        Where the text of a cell is, if one is to be run.

    Raises
    ------
    Refused
        If the parser does not take it, or there is no such script.
    """
    if is_cell := cell.exists():
        at = words.index("--") if "--" in words else len(words)
        words = [*words[:at], str(cell), *words[at + 1 :]]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = torchrun.parse_args(words)
    except SystemExit as left:
        if not left.code:  # --help
            raise
        reason = said.getvalue().strip().rpartition("error: ")[2]
        if "training_script" in reason:
            reason = "the script to run is missing, as in --nproc-per-node=2 script.py"
        raise Refused(reason) from None
    if is_cell and args.training_script != str(cell):
        raise Refused(
            f"the script is the cell itself, so {args.training_script!r} cannot be one; %torchrun "
            "runs a file, and the cell's arguments stand behind --"
        )
    if not (args.module or args.no_python) and not os.path.isfile(args.training_script):
        raise Refused(f"there is no file {args.training_script}")
    try:
        low, high = torchrun.parse_min_max_nnodes(args.nnodes)
        count = torchrun.determine_local_world_size(args.nproc_per_node)
    except (ValueError, RuntimeError) as error:
        raise Refused(str(error)) from None
    if not 0 < low <= high:
        raise Refused(f"--nnodes={args.nnodes} is no number of nodes")
    if count < 1:
        raise Refused(f"--nproc-per-node={args.nproc_per_node} is no number of workers")
    return args


def logs_its_own_way(args: argparse.Namespace) -> bool:
    """Return whether a command line says itself where the workers' output goes."""
    asked = (args.log_dir, args.logs_specs, args.duplicate_stdout_filters)
    return any(asked) or {args.redirects, args.tee} != {"0"}


def prepare(args: argparse.Namespace, folder: Path) -> None:
    """Set what the command line leaves open."""
    cell = os.environ.pop(CELL, "")
    count = torchrun.determine_local_world_size(args.nproc_per_node)
    if not os.environ.get("OMP_NUM_THREADS"):
        os.environ["OMP_NUM_THREADS"] = str(max(1, count_cores() // count))
    if torchrun.parse_min_max_nnodes(args.nnodes)[1] == 1:
        loopback_only()
        guard.install_loopback()
        args.local_addr = args.local_addr or LOOPBACK
    if not (own_way := logs_its_own_way(args)):
        args.redirects = "3"
    if not (args.log_dir or (own_way and args.redirects != "0")):
        args.log_dir = str(folder / LOGS)  # else torchrun leaves a folder in TMPDIR
    if not os.environ.get(LOG_LEVEL):
        logging.disable(logging.ERROR)
    if not (args.module or args.no_python or args.run_path):
        mode = worker.PRINT if own_way else worker.KEEP
        name = cell if args.training_script == str(folder / SCRIPT) else ""
        own = [str(os.getpid()), mode, str(folder / SOCKET), name, args.training_script]
        args.training_script_args = [*own, *args.training_script_args]
        args.training_script, args.module = worker.__name__, True
        # Until the script begins, nothing beside the notebook is taken for Python's own.
        os.environ[worker.SAFE_PATH] = "1"
        if (place := folder / WORKERS).exists():
            fork.install(str(place), worker.__name__)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
