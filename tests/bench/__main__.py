"""Run the benchmarks: ``python -m tests.bench --help``."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from . import report
from .child import BenchError, environment, time_to_answer
from .measurements import BENCHMARKS, Benchmark

NAMES = [benchmark.claim.name for benchmark in BENCHMARKS]
#: What the programs import.
MODULES = (
    "torch.distributed.run",
    "torch.nn.parallel",
    "ipyparallel.controller.app",
    "ipyparallel.engine.app",
    "IPython.core.interactiveshell",
    "labkit.notebook.lab",
    "labkit.rank.setup",
)


def run(
    benchmarks: Iterable[Benchmark], rounds: int, command: str, path: Path, console: Console
) -> int:
    """Measure every claim, show the table, save the JSON.

    Returns the exit code: 0 if every claim keeps to its bound, else 1. One that fails does not
    keep the others from being measured.
    """
    claims = []
    load = {"before": os.getloadavg()}
    for benchmark in benchmarks:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            try:
                claim = benchmark.measure(benchmark.claim, rounds, environment(scratch))
            except BenchError as error:
                claim = replace(benchmark.claim, error=str(error))
        claims.append(claim)
        seconds = time.monotonic() - began
        console.print(f"[dim]{claim.name}: {claim.verdict}, took {seconds:.0f} s[/]")
    load["after"] = os.getloadavg()
    report.save(path, claims, command, load)
    console.print(report.table(claims))
    for note in report.notes(claims):
        console.print(escape(note), highlight=False)
    return 0 if all(claim.ok for claim in claims) else 1


def warm_up() -> None:
    """Read once what the programs read: a cold start has fresh processes, not a cold disk."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        code = f"import time, {', '.join(MODULES)}; print('BENCH', time.time(), flush=True)"
        time_to_answer([sys.executable, "-c", code], seconds=120, env=environment(scratch))


def main(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Measure this claim only; may be repeated. One of: {', '.join(NAMES)}."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each thing is measured.")] = 5,
    json: Annotated[Path, typer.Option(help="Where every measurement goes.")] = Path("bench.json"),
) -> None:
    """Measure what docs/BENCHMARKS.md reports: a table here, every measurement in a JSON file.

    The exit code is 1 if a claim is over its bound or could not be measured.
    """
    if unknown := [name for name in only or [] if name not in NAMES]:
        raise typer.BadParameter(f"no claim {unknown[0]!r}: {', '.join(NAMES)}", param_hint="only")
    chosen = [b for b in BENCHMARKS if not only or b.claim.name in only]
    command = shlex.join(["python", "-m", "tests.bench", *sys.argv[1:]])
    warm_up()
    raise typer.Exit(run(chosen, rounds, command, json, Console()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # tidy up as after a Ctrl-C
    typer.run(main)
