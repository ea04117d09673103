"""Compare an executed notebook's outputs with those of another run, by nbval's rules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nbformat import NotebookNode

from tests.support.noise import steady, without_log

#: What nbval does not look at.
NOT_COMPARED = ("text/latex", "image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json")
#: Tags of cells whose output is not compared.
IGNORED = {"nbval-ignore-output", "nbval-skip"}
#: Characters of an output that are kept.
KEPT = 2000


@dataclass(frozen=True)
class Difference:
    """A cell whose output is another one."""

    cell: int  #: its place among the code cells with something in them, from 1
    id: str  #: its own, which stays when cells come and go before it
    source: str
    expected: str
    found: str


@dataclass(frozen=True)
class Failed:
    """A cell that ended in an error which is neither announced nor expected."""

    cell: int
    error: str


@dataclass(frozen=True)
class Comparison:
    """What came of comparing one notebook."""

    cells: int  #: code cells with something in them
    reached: int  #: those that were executed
    compared: int
    failed: tuple[Failed, ...]
    differences: tuple[Difference, ...]


def compare(expected: NotebookNode, found: NotebookNode) -> Comparison:
    """Compare cell by cell; a cell that was not reached is not compared.

    What differs in each run (times in torch's log, addresses, counts of collectives) is left out.
    An error is expected where ``expected`` has the same one: a notebook that names rank 3 fails
    on one rank, whatever the device.
    """
    pairs = [
        (one, other)
        for one, other in zip(expected.cells, found.cells, strict=True)
        if other.cell_type == "code" and other.source.strip()
    ]
    reached = compared = 0
    failed, differences = [], []
    for number, (one, other) in enumerate(pairs, 1):
        if other.execution_count is None:
            continue
        reached += 1
        error, before = error_of(other), error_of(one)
        announced = "raises-exception" in other.metadata.get("tags", [])
        if error and not announced and error.partition(":")[0] != before.partition(":")[0]:
            failed.append(Failed(number, error[:KEPT]))
        if IGNORED & set(other.metadata.get("tags", [])):
            continue
        compared += 1
        if steadily(one) != steadily(other):
            texts = (steady_text(one)[:KEPT], steady_text(other)[:KEPT])
            id = one.get("id", "")
            differences.append(Difference(number, id, other.source[:KEPT], *texts))
    return Comparison(len(pairs), reached, compared, tuple(failed), tuple(differences))


def error_of(cell: NotebookNode) -> str:
    """Return the error that ended a cell, "" if none did."""
    errors = [out for out in cell.get("outputs", []) if out.output_type == "error"]
    return f"{errors[-1].ename}: {errors[-1].evalue}" if errors else ""


def outputs(cell: NotebookNode) -> dict[str, list[str]]:
    """Return what is compared: by kind, everything of it in order; streams as one text each."""
    found = defaultdict(list)
    streams: dict[str, str] = {}
    for out in cell.get("outputs", []):
        if out.output_type == "stream":
            streams[out.name] = streams.get(out.name, "") + out.text
        elif out.output_type == "error":
            found["error"].append(f"{out.ename}: {out.evalue}")
        else:
            for kind, value in out.get("data", {}).items():
                if kind not in NOT_COMPARED:
                    found[kind].append(value)
    return {**found, **{name: [text] for name, text in streams.items()}}


def steadily(cell: NotebookNode) -> dict[str, list[str]]:
    """Return what is compared, without what differs in each run; a kind of which nothing is left
    is not there."""
    found = {
        kind: [without_log(steady(str(value))) for value in values]
        for kind, values in outputs(cell).items()
    }
    return {kind: values for kind, values in found.items() if any(values)}


def steady_text(cell: NotebookNode) -> str:
    """Return a cell's output as text, without what differs in each run."""
    return without_log(steady(shown(cell)))


def shown(cell: NotebookNode) -> str:
    """Return a cell's output as text, for somebody who wants to see how two differ."""
    kinds = outputs(cell)
    html = kinds.pop("text/html", [])
    order = dict.fromkeys(["stdout", "stderr", "text/plain", "error", *sorted(kinds)])
    texts = [text for kind in order for text in kinds.get(kind, [])] or html
    return "\n".join(map(str, texts))
