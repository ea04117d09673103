"""Put what a machine with a GPU gave back where it belongs: ``python -m tests.gpu.record FOLDER``.

- Figures go to ``data/measurements/``, with their origin.
- Cells of notebooks that say "not recorded yet" and need wait no longer are listed.
- Each program and each cell that showed something else on NCCL becomes a failing test for the fake
  NCCL, by a row in ``tests/gpu/seen.json``. Where labkit is wrong rather than the fake, mend it and
  take the row out again.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import nbformat
import typer

from tests.gpu.run import pack, report
from tests.gpu.run.result import Step
from tests.support.conda_versions import ROOT
from tests.support.observed import SEEN

MEASUREMENTS = ROOT / "data" / "measurements"
NOTEBOOKS = ROOT / "notebooks"
#: What a cell says that waits for a GPU, and the beginning of the tag that says for what.
WAITS, TAG = "not recorded yet", "waits-for-"


class NothingToRecordError(Exception):
    """Why there is nothing to record, in one sentence."""


Report = Mapping[str, Any]


def has_figure(name: str) -> Callable[[Report], bool]:
    """Return a predicate that is true of a report with a figure of this name."""
    return lambda found: any(f["figure"] == name for f in found["figures"])


def has_passed(test: str) -> Callable[[Report], bool]:
    """Return a predicate that is true of a report in which a test has passed, by a part of its
    name."""
    return lambda found: any(
        test in item["name"] and item["state"] == "passed"
        for step in found["steps"]
        for item in step["items"]
    )


#: What cells wait for -> whether a report has it.
ANSWERED: dict[str, Callable[[Report], bool]] = {
    "overlap": has_figure("overlap"),
    "precision": has_figure("precision"),
    "streams": has_passed("test_wait_queues_and_another_stream_waits_for_the_sum"),
    "several-gpus": lambda found: len(found["machine"]["gpus"]) > 1,
}


def read(folder: Path) -> Report:
    """Return the report in a folder that came back, or in the archive there.

    Raises
    ------
    NothingToRecordError
        If there is none, or it is not of a GPU.
    """
    path = folder / "report.json"
    if not path.exists():
        with tempfile.TemporaryDirectory() as scratch:
            try:
                pack.unpack(folder, Path(scratch))
                text = Path(scratch, "report.json").read_text()
            except FileNotFoundError:
                raise NothingToRecordError(
                    f"{folder} has neither report.json nor {pack.ARCHIVE}."
                ) from None
    else:
        text = path.read_text()
    found: Report = json.loads(text)
    if not found["gpu"] or not found["machine"].get("gpus"):
        raise NothingToRecordError(f"The report in {folder} was made without a GPU.")
    return found


def origin(found: Report) -> dict[str, Any]:
    """Return when, where and by which command something was seen."""
    head = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    machine = found["machine"]
    return {
        "date": found["date"],
        "recorded_at": head.stdout.strip() or None,  # the commit of this checkout
        "command": found["command"],
        **{name: machine[name] for name in ("gpus", "driver", "cores", "python", "torch", "cuda",
                                            "nccl")},
    }  # fmt: skip


def keep_figures(found: Report, folder: Path = MEASUREMENTS) -> Path | None:
    """Write the figures of a report with their origin; return the file, None if there is none."""
    if not found["figures"]:
        return None
    machine = found["machine"]
    gpu = re.sub(r"[^a-z0-9]+", "-", machine["gpus"][0]["name"].lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found['date'][:10]}-{gpu}-nccl-{machine['nccl']}.json"
    document = {"origin": origin(found), "figures": found["figures"]}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def waiting(notebooks: Path = NOTEBOOKS) -> Iterator[tuple[str, str, str]]:
    """Yield notebook, cell and what it waits for, of every cell that says so."""
    for path in sorted(notebooks.glob("[0-9]*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            tags = [t.removeprefix(TAG) for t in cell.metadata.get("tags", []) if TAG in t]
            if WAITS in cell.source or tags:
                yield path.stem, cell.id, tags[0] if tags else ""


def can_go(found: Report, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Return the cells of notebooks that need wait no longer."""
    return [
        f"{name}: cell {cell}, {what}"
        for name, cell, what in waiting(notebooks)
        if what in ANSWERED and ANSWERED[what](found)
    ]


def programs(found: Report) -> list[dict[str, Any]]:
    """Return the programs that ended in another way than their tests expect."""
    return [
        {"test": item.name, **item.more["observed"]}
        for step in steps(found)
        if step.name.startswith(("deadlocks-", "tables-"))  # what the fake NCCL stands in for
        for item in step.items
        if item.state == "failed" and "observed" in item.more
    ]


def cells(found: Report) -> dict[str, dict[str, str]]:
    """Return what compared cells showed on four ranks of NCCL, where the reference shows another.

    What names a GPU is left out: the fake NCCL has none.
    """
    if found["plan"] != "b":
        return {}
    shown: dict[str, dict[str, str]] = {}
    for step in steps(found):
        if step.name not in ("course-4", "rest-4"):
            continue
        for item in step.items:
            for one in item.more.get("differences", ()):
                if "cuda" not in one["found"].lower():
                    shown.setdefault(item.name, {})[one["id"]] = one["found"]
    return shown


def steps(found: Report) -> list[Step]:
    """Return the steps of a report."""
    return [report.step_of(one) for one in found["steps"]]


def add_seen(found: Report, path: Path = SEEN) -> int:
    """Add what was seen to the tests for the fake NCCL; return how many rows are new."""
    before = json.loads(path.read_text())
    where = origin(found)
    known = {(row["test"], row["ranks"]) for row in before["programs"]}
    new = [row for row in programs(found) if (row["test"], row["ranks"]) not in known]
    before["programs"] += [{**row, "origin": where} for row in new]
    count = len(new)
    for notebook, shown in cells(found).items():
        count += len(shown.keys() - before["cells"].setdefault(notebook, {}).keys())
        before["cells"][notebook] |= shown
    if count:
        path.write_text(json.dumps(before, indent=1) + "\n")
    return count


def by_hand(found: Report) -> list[str]:
    """Return what failed without leaving anything that a test could be made of."""
    return [
        f"{step.name}: {report.short(item.name)}: {' '.join(item.why.split())[:200]}"
        for step in steps(found)
        for item in step.items
        if item.state == "failed" and "observed" not in item.more
    ]


def main(
    folder: Annotated[Path, typer.Argument(help="What came back from the machine.")],
) -> None:
    """Put what a machine with a GPU gave back where it belongs."""
    try:
        found = read(folder)
    except NothingToRecordError as error:
        typer.echo(f"record: {error}", err=True)
        raise typer.Exit(2) from None
    path = keep_figures(found)
    typer.echo(f"Figures: {path.relative_to(ROOT) if path else 'none'}.")
    rows = add_seen(found)
    typer.echo(f"New rows in {SEEN.relative_to(ROOT)}: {rows}.")
    if rows:
        typer.echo("They fail until the fake NCCL, or labkit, is mended:")
        typer.echo("  pytest tests/gpu/test_seen_on_nccl.py tests/course/test_on_fake_nccl.py")
    for title, lines in (("Can go from the notebooks", can_go(found)),
                         ("To be looked at by hand", by_hand(found))):  # fmt: skip
        typer.echo(f"{title}:" + "".join(f"\n  {line}" for line in lines or ["nothing"]))


if __name__ == "__main__":
    typer.run(main)
