"""Show what was measured, and save it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.box import HORIZONTALS
from rich.table import Table

from .claim import Claim

#: What the figures depend on.
PACKAGES = ("torch-labkit", "torch", "ipyparallel", "ipykernel", "IPython", "pyzmq", "numpy")
COLOURS = {"ok": "green", "over": "red", "failed": "red"}


def table(claims: Sequence[Claim]) -> Table:
    """Make one table, a row a claim."""
    out = Table(
        title="What labkit claims, measured here", box=HORIZONTALS, show_lines=True, padding=(0, 1)
    )
    out.add_column("claim", min_width=16)
    for side in ("A", "B"):
        out.add_column(side)
    out.add_column("median", justify="right", no_wrap=True)
    out.add_column("bound", justify="right", no_wrap=True)
    out.add_column("", min_width=6, no_wrap=True)
    for claim in claims:
        unit = claim.figure_unit
        out.add_row(
            f"[bold]{claim.name}[/]\n{claim.what}",
            _side(claim, "a"),
            _side(claim, "b"),
            "–" if claim.figure is None else f"{claim.figure:.3g} {unit}",
            f"{'≥' if claim.at_least else '≤'} {claim.bound:g}",
            f"[{COLOURS[claim.verdict]}]{claim.verdict}[/]",
        )
    return out


def _side(claim: Claim, side: str) -> str:
    """Name one side of a comparison, with its own median below."""
    median = claim.median(side)
    below = "" if median is None else f"\n{median:.4g} {claim.unit}"
    return getattr(claim, side) + below


def notes(claims: Sequence[Claim]) -> list[str]:
    """Return a line for each claim that has something to add, or why it has no figure."""
    return [f"{c.name}: {text}" for c in claims for text in (c.note, c.error) if text]


def save(
    path: Path, claims: Sequence[Claim], command: str, load: Mapping[str, Sequence[float]]
) -> None:
    """Write every measurement to a JSON file, with what the figures depend on."""
    path.write_text(json.dumps(document(claims, command, load), indent=2) + "\n")


def document(
    claims: Sequence[Claim], command: str, load: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Return what ``save`` writes."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "cores": len(psutil.Process().cpu_affinity())
            if hasattr(psutil.Process, "cpu_affinity")
            else os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "load_average": {name: list(values) for name, values in load.items()},
        },
        "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
        "claims": [claim.to_dict() for claim in claims],
    }
