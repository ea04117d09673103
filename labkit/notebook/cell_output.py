"""Know whether the output of a notebook's cell is empty, show something there, take it away.

Jupyter can only clear all of a cell's output. So what comes and goes may be shown only while there
is nothing else.
"""

from __future__ import annotations

from typing import Any

from ..launch.ipyparallel_internals import has_printed

_current: CellOutput | None = None


def current() -> CellOutput | None:
    """Return the output of the cell that runs, None before :func:`install`."""
    return _current


def install(shell: Any) -> None:
    """Begin to follow what a kernel's cells show, once."""
    global _current
    if _current is None or _current.shell is not shell:
        _current = CellOutput(shell)


class CellOutput:
    """What the cell that runs has shown so far."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._displayed = False
        shell.events.register("pre_run_cell", self._begin)
        shell.display_pub.register_hook(self._note)
        self._begin()

    def _begin(self, info: Any = None) -> None:
        self._displayed = False

    def _note(self, message: Any) -> Any:
        self._displayed = True
        return message

    def is_empty(self) -> bool:
        """Tell whether the cell has shown nothing; False where IPython does not say."""
        return not self._displayed and has_printed(self.shell) is False

    def show(self, bundle: dict[str, str], name: str, *, update: bool) -> None:
        """Show a mime bundle, or put it in the place of the one of that name."""
        before = self._displayed
        transient = {"display_id": name}
        self.shell.display_pub.publish(bundle, transient=transient, update=update)
        self._displayed = before

    def clear(self, *, wait: bool) -> None:
        """Clear the cell's output; with ``wait`` when the next output comes."""
        self.shell.display_pub.clear_output(wait=wait)
        self._displayed = False
