"""Show what came of it, and save it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.box import HORIZONTALS
from rich.markup import escape
from rich.table import Table

from .result import Step

COLOURS = {"passed": "green", "failed": "red", "not run": "yellow"}


@dataclass
class Report:
    """Everything that is known so far."""

    command: str
    machine: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def save(self, path: Path) -> None:
        """Write it as JSON; what was not run is listed once more by itself."""
        steps = [{**asdict(step), "state": step.state} for step in self.steps]
        left = {s.name: _not_run(s) for s in self.steps if s.state == "not run" or _not_run(s)}
        document = {**asdict(self), "steps": steps, "not_run": left}
        path.write_text(json.dumps(document, indent=2) + "\n")


def table(report: Report) -> Table:
    """Make one table, a row a step."""
    out = Table(title="test-gpu", box=HORIZONTALS, padding=(0, 1))
    out.add_column("step", min_width=18)
    for name in ("passed", "failed", "skipped", "not run", "seconds"):
        out.add_column(name, justify="right", no_wrap=True)
    out.add_column("", min_width=7, no_wrap=True)
    for step in report.steps:
        counts = [
            str(step.count("passed")),
            str(step.count("failed")),
            str(step.count("skipped")),
            str(step.count("not run")),
        ]
        state = f"[{COLOURS[step.state]}]{step.state}[/]"
        out.add_row(escape(step.name), *counts, f"{step.seconds:.0f}", state)
    return out


def machine_lines(machine: dict[str, Any]) -> list[str]:
    """Say what it ran on."""
    if not machine:
        return []
    gpus = machine["gpus"]
    names = ", ".join(f"{gpu['name']}, {gpu['gib']:.0f} GiB" for gpu in gpus) or "no GPU"
    driver = f", driver {machine['driver']}" if machine["driver"] else ""
    own = machine["nccl_of_torch"]
    built = f" (torch was built with {own})" if own != machine["nccl"] else ""
    return [
        f"{names}{driver}, {machine['cores']} cores",
        f"torch {machine['torch']}, NCCL {machine['nccl'] or '–'}{built}, "
        f"Python {machine['python']}",
    ]


def figure_lines(figures: Sequence[dict[str, Any]]) -> list[str]:
    """Say how long labs took to start."""
    lines = []
    for figure in figures:
        ranks = f"start of {figure['ranks']}"
        if "error" in figure:
            lines.append(f"{ranks}: {figure['error']}")
            continue
        where = f"{figure['backend']} on {', '.join(figure['devices'])}"
        times = f"{figure['start_seconds']} s, to an all_reduce {figure['all_reduce_seconds']} s"
        lines.append(f"{ranks}: {times} ({where})")
    return lines


def notes(steps: Sequence[Step]) -> list[str]:
    """Return lines on what failed, what was left out, and which cells showed something else."""
    lines = []
    for step in steps:
        for item in step.items:
            if item.state == "failed":
                lines.append(f"{step.name}: {item.name} failed. {item.why}".rstrip())
        if step.state == "not run" and step.why:
            lines.append(f"{step.name}: not run, {step.why}")
        elif left := _not_run(step):
            lines.append(f"{step.name}: not run: {', '.join(left)}")
        lines += _differing(step)
    return lines


def _not_run(step: Step) -> list[str]:
    return [f"{i.name} ({i.why})" if i.why else i.name for i in step.items if i.state == "not run"]


def _differing(step: Step) -> list[str]:
    lines = []
    for item in step.items:
        if found := item.more.get("differences"):
            cells = ", ".join(str(one["cell"]) for one in found)
            what = "the stored ones" if item.more["against"] == "stored" else item.more["against"]
            lines.append(
                f"{step.name}: {item.name}: {len(found)} of {item.more['compared']} compared cells"
                f" differ from {what}: {cells}"
            )
    return lines
