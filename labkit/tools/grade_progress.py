"""Show on stderr how far the grading of notebooks has come."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ..teaching.grade import Grade
from .run_progress import Bar


class GradeView(Bar):
    """A bar of notebooks, in a ``with`` block; above it what went wrong, as it is known."""

    def __init__(self, notebooks: int) -> None:
        console = Console(stderr=True, highlight=False)
        super().__init__(console, "notebook", notebooks, title="grading", line="")

    def begins(self, home: str, notebook: str) -> None:
        """Show which notebook was begun last."""
        self._bar.update(self._task, line=f"{home} {notebook}")

    def ended(self, grade: Grade) -> None:
        """Move the bar on; print what went wrong in a run."""
        self._bar.advance(self._task)
        for note in grade.notes:
            self.console.print(Text(f"{grade.home} {grade.number}: {note}"), soft_wrap=True)
