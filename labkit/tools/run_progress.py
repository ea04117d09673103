"""Show in the terminal how a notebook runs: a progress bar, and the cells' output if wanted."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Self

from nbformat import NotebookNode
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from .run_notebook import Failure

#: Characters of a cell's first line beside the bar, and lines of the cell that failed.
LINE_WIDTH = 40
SOURCE_LINES = 8
QUOTES_THE_CELL = re.compile(r"\bIn ?\[\d+\]")


class Bar:
    """A progress bar on a terminal, in a ``with`` block; beside it a line says what runs."""

    def __init__(self, console: Console, unit: str, total: int, *, title: str, line: str) -> None:
        self.console = console
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn(unit),
            MofNCompleteColumn(separator=" of "),
            TimeElapsedColumn(),
            TextColumn("{task.fields[line]}", markup=False, style="dim"),
            console=console,
        )
        self._task = self._bar.add_task(title, total=total, line=line)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.update(self._task, line="")
        self._bar.stop()


class RunView(Bar):
    """A ``notebook_run.Watcher`` that draws on a terminal, in a ``with`` block.

    Parameters
    ----------
    title
        The notebook's name.
    cells
        How many code cells will run.
    verbose
        Print each cell's text output as it ends.
    """

    def __init__(self, title: str, cells: int, *, verbose: bool) -> None:
        console = Console(highlight=False)
        super().__init__(console, "cell", cells, title=title, line="starting the kernel")
        self.verbose = verbose
        self.cells = cells

    def begins(self, number: int, cell: NotebookNode) -> None:
        """Show the first line of a cell beside the bar; numbers count code cells from 1."""
        line = first_line(cell.source)
        self._bar.update(self._task, line=line)
        if self.verbose:
            self.console.print(Text(f"── cell {number} of {self.cells}: {line}", "bold"))

    def ended(self, number: int, cell: NotebookNode) -> None:
        """Move the bar on; print what the cell has stored."""
        self._bar.update(self._task, completed=number)
        if self.verbose:
            for output in cell.outputs:
                text = Text.from_ansi(output_text(output).rstrip("\n"))
                self.console.print(text, soft_wrap=True)


def first_line(source: str) -> str:
    """Return the first line of a cell, cut to ``LINE_WIDTH`` characters."""
    line = source.strip().splitlines()[0]
    return line if len(line) <= LINE_WIDTH else line[: LINE_WIDTH - 1] + "…"


def output_text(output: NotebookNode) -> str:
    """Return a stored output as text, with its ANSI colours; pictures by their description."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return str(output.data.get("text/plain", f"[{', '.join(output.data)}]"))


def show_failure(failure: Failure, cells: int) -> None:
    """Print which cell failed, and its error, on stderr; and the cell, unless the error quotes
    it."""
    console = Console(stderr=True, highlight=False)
    what = "was interrupted" if failure.interrupted else "failed"
    where = f"Cell {failure.number} of {cells} {what}:" if failure.number else "No cell ran:"
    console.print(Text(where, "bold red"))
    error = Text.from_ansi(failure.error)
    lines = [] if QUOTES_THE_CELL.search(error.plain) else failure.source.strip("\n").splitlines()
    if len(lines) > SOURCE_LINES:
        lines[SOURCE_LINES - 1 :] = [f"… {len(lines) - SOURCE_LINES + 1} more lines"]
    for line in lines:
        console.print(Text(f"    {line}", "dim"), soft_wrap=True)
    console.print(error, soft_wrap=True)
