"""Compare labkit with its peers: ``python -m tests.bench.peers --help``."""

from __future__ import annotations

import json
import os
import platform
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from .. import report
from ..claim import Claim
from . import bounds, figure, table
from .compare import SIZES, compare
from .install import ROOT
from .peer import PEERS, Peer
from .result import Result

NAMES = [peer.name for peer in PEERS]


def run(
    peers: Sequence[Peer],
    rounds: int,
    sizes: Sequence[int],
    command: str,
    out: Path,
    console: Console,
) -> int:
    """Measure the peers, show the table, save JSON, Markdown and figure in a folder.

    Returns the exit code: 1 if a bound of labkit's is broken, else 0, whatever a peer does.
    """
    load = {"before": os.getloadavg()}
    say = lambda words: console.print(f"[dim]{escape(words)}[/]", highlight=False)  # noqa: E731
    results = [Result(peer) for peer in peers]
    out.mkdir(parents=True, exist_ok=True)
    try:
        compare(results, rounds, sizes, say)
    finally:  # what was measured until a Ctrl-C is worth keeping
        load["after"] = os.getloadavg()
        claims = bounds.judge(results)
        saved = json.dumps(document(results, claims, command, load), indent=2)
        (out / "peers.json").write_text(saved + "\n")
        (out / "peers.md").write_text(table.markdown(results, sizes))
    figure.draw(results, sizes, out / "peers.png")
    console.print(table.terminal(results, sizes))
    console.print(table.terminal_notebook(results))
    if claims:
        console.print(report.table(claims))
    for note in report.notes(claims):
        console.print(escape(note), highlight=False)
    console.print(f"peers.json, peers.md, peers.png and peers.svg are in {escape(str(out))}")
    return 0 if all(claim.ok for claim in claims) else 1


def document(
    results: Sequence[Result],
    claims: Sequence[Claim],
    command: str,
    load: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """Return what the JSON file holds."""
    out = report.document(claims, command, load)
    out["machine"] |= {"cpu": cpu_model(), "kernel": platform.release()}
    return {**out, "peers": [result.to_dict() for result in results]}


def cpu_model(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name; empty where the system does not say."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")


def main(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Measure this only; may be repeated. One of: {', '.join(NAMES)}."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is started per size.")] = 3,
    ranks: Annotated[
        list[int] | None, typer.Option(min=2, help="Start this many; may be repeated: 4 and 16.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for table, figure and JSON.")] = (
        ROOT / "build" / "bench-peers"
    ),
) -> None:
    """Compare labkit with other ways to run ranks: a table here, all figures in a folder.

    What is not in labkit's lock is installed below build/ first. The exit code is 1 if labkit
    breaks a bound; a peer that does not install or start is a row that says so.
    """
    if unknown := [name for name in only or [] if name not in NAMES]:
        raise typer.BadParameter(f"no peer {unknown[0]!r}: {', '.join(NAMES)}", param_hint="only")
    chosen = [peer for peer in PEERS if not only or peer.name in only]
    command = shlex.join(["python", "-m", "tests.bench.peers", *sys.argv[1:]])
    raise typer.Exit(run(chosen, rounds, ranks or SIZES, command, out, Console()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # tidy up as after a Ctrl-C
    typer.run(main)
