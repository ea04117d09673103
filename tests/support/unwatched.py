"""Run a notebook with nobody looking."""

from __future__ import annotations

from nbformat import NotebookNode


class Unwatched:
    """A watcher of ``run_notebook.execute`` that shows nothing."""

    def begins(self, number: int, cell: NotebookNode) -> None:
        """Show nothing."""

    def ended(self, number: int, cell: NotebookNode) -> None:
        """Show nothing."""
