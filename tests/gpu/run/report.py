"""Show what came of it in one screen, and save all of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .result import Item, Step

#: Characters of the table: a machine that is lent shows the last 12,000 of all that was printed.
LIMIT = 11_000
#: Characters of one line, and lines about the cells that differ.
LINE, CELLS = 220, 40
#: Names that are shown of those that failed with the same sentence.
SAME = 3


@dataclass
class Report:
    """Everything that is known so far."""

    command: str
    gpu: bool = True  #: whether GPUs were to be used
    plan: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0
    total: float = 0.0  #: seconds that there were
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def figures(self) -> list[dict[str, Any]]:
        """Return what was measured, as the programs said it."""
        facts = [item.more.get("facts", {}) for step in self.steps for item in step.items]
        return [one for one in facts if "figure" in one]

    def save(self, folder: Path) -> None:
        """Write it as ``report.json`` and the table as ``table.txt``."""
        steps = [{**asdict(step), "state": step.state} for step in self.steps]
        document = {**asdict(self), "figures": self.figures, "steps": steps}
        (folder / "report.json").write_text(json.dumps(document, indent=1) + "\n")
        (folder / "table.txt").write_text(table(self) + "\n")


def load(path: Path) -> dict[str, Step]:
    """Return the steps of a report by their names; none if there is no report."""
    if not path.exists():
        return {}
    return {one["name"]: step_of(one) for one in json.loads(path.read_text())["steps"]}


def step_of(one: dict[str, Any]) -> Step:
    """Return a step as a report has it."""
    items = [Item(**item) for item in one["items"]]
    return Step(one["name"], items, one["seconds"], one["why"])


def table(report: Report) -> str:
    """Return the report as text of at most ``LIMIT`` characters, what matters most first."""
    head = machine_lines(report.machine)
    head += [f"plan {report.plan}; {report.seconds:.0f} of {report.total:.0f} s", ""]
    head.append(f"{'':14}{'passed':>7}{'failed':>7}{'skipped':>8}{'not run':>8}{'seconds':>8}")
    for step in report.steps:
        counts = [step.count(s) for s in ("passed", "failed", "skipped", "not run")]
        numbers = "".join(
            f"{count:>{width}}" for count, width in zip(counts, (7, 7, 8, 8), strict=True)
        )
        head.append(f"{step.name:14}{numbers}{step.seconds:8.0f}  {step.state}")
    parts = [
        ("failed", failures(report.steps)),
        ("measured", figure_lines(report.figures)),
        ("not run", not_run(report.steps)),
        ("cells that differ", differences(report.steps)[:CELLS]),
        ("skipped", skipped(report.steps)),
    ]
    lines = list(head)
    room = LIMIT - sum(len(line) + 1 for line in lines)
    for title, found in parts:
        if found:
            lines += ["", f"-- {title}"]
            room -= len(title) + 5
        for index, line in enumerate(found):
            short = " ".join(line.split())[:LINE]
            if room < len(short) + 80:
                lines.append(f"… {len(found) - index} more in report.json")
                return "\n".join(lines)
            lines.append(short)
            room -= len(short) + 1
    return "\n".join(lines)


def machine_lines(machine: dict[str, Any]) -> list[str]:
    """Describe what it ran on."""
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


def failures(steps: Sequence[Step]) -> list[str]:
    """Return a line per sentence, with the tests, notebooks or programs that failed with it."""
    names: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        for item in step.items:
            if item.state == "failed":
                names.setdefault((step.name, " ".join(item.why.split())), []).append(item.name)
    lines = []
    for (step_name, why), found in names.items():
        more = f" and {len(found) - SAME} more" if len(found) > SAME else ""
        lines.append(f"{step_name}: {', '.join(map(short, found[:SAME]))}{more}: {why}")
    return lines


def short(name: str) -> str:
    """Return a test's name without its file: the piece says which that is."""
    return name.rpartition("/")[2].partition("::")[2] or name


def figure_lines(figures: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line per figure: all that was measured, as short as JSON can be."""
    lines = []
    for figure in figures:
        facts = {k: v for k, v in figure.items() if k not in ("figure", "ranks", "devices")}
        rows = facts.pop("rows", [])
        if rows and "bytes" in rows[0] and "gb_per_second" in rows[0]:
            rows = [f"{row['bytes'] >> 10}K {row['gb_per_second']}" for row in rows]
        parts = [f"{key} {value}" for key, value in facts.items()]
        parts += [" ".join(str(v) for v in r.values()) if isinstance(r, dict) else r for r in rows]
        lines.append(f"{figure['figure']}-{figure['ranks']}: {', '.join(parts)}")
    return lines


def not_run(steps: Sequence[Step]) -> list[str]:
    """Return a line per piece of which something did not run."""
    lines = []
    for step in steps:
        left = [short(i.name) for i in step.items if i.state == "not run"]
        whys = {item.why for item in step.items if item.state == "not run"} or {step.why}
        if left:
            lines.append(f"{step.name} ({', '.join(sorted(whys))}): {', '.join(left)}")
        elif not step.items:
            lines.append(f"{step.name}: {step.why}")
    return lines


def differences(steps: Sequence[Step]) -> list[str]:
    """Return a line per cell whose output differs: the first lines in which it does."""
    lines = []
    for step in steps:
        for item in step.items:
            for one in item.more.get("differences", ()):
                expected, found = first_difference(one["expected"], one["found"])
                lines.append(
                    f"{step.name}: {item.name} cell {one['cell']}: {expected!r} → {found!r}"
                )
    return lines


def first_difference(expected: str, found: str) -> tuple[str, str]:
    """Return the first lines in which two texts differ, shortened."""
    pairs = zip([*expected.splitlines(), ""], [*found.splitlines(), ""], strict=False)
    one, other = next(((a, b) for a, b in pairs if a != b), ("", ""))
    return one.strip()[:70], other.strip()[:70]


def skipped(steps: Sequence[Step]) -> list[str]:
    """Return how many tests were skipped, by piece and reason."""
    counts: dict[tuple[str, str], int] = {}
    for step in steps:
        for item in step.items:
            if item.state == "skipped":
                counts[step.name, item.why] = counts.get((step.name, item.why), 0) + 1
    return [f"{name}: {count} × {why}" for (name, why), count in counts.items()]
