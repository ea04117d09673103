"""Show on stderr how far the grading of notebooks has come."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..teaching.grade import Grade


class GradeView:
    """A bar of notebooks, in a ``with`` block; above it what went wrong, as it is known."""

    def __init__(self, notebooks: int) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("notebook"),
            MofNCompleteColumn(separator=" of "),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[line]}", markup=False, style="dim"),
            console=self.console,
        )
        self._task = self._bar.add_task("", total=notebooks, line="")

    def __enter__(self) -> GradeView:
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

    def begins(self, home: str, notebook: str) -> None:
        """Show which notebook was begun last."""
        self._bar.update(self._task, line=f"{home} {notebook}")

    def ended(self, grade: Grade) -> None:
        """Move the bar on; print what went wrong in a run."""
        self._bar.advance(self._task)
        for note in grade.notes:
            self.console.print(Text(f"{grade.home} {grade.number}: {note}"), soft_wrap=True)
