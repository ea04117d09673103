"""``%%torchrun`` and ``%torchrun``: run a cell's text, or a script, under the real torchrun."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from ..base import interrupts
from ..base.errors import UsageError
from ..runtime.torchrun import Job
from . import live, show
from . import shell as ipython


@magics_class
class TorchrunMagics(Magics):
    """The magics that run torchrun beside the notebook."""

    @cell_magic("torchrun")
    def cell(self, line: str, cell: str) -> None:
        """Run the cell's text as a script under torchrun: ``%%torchrun --nproc-per-node=2``.

        The line is torchrun's own, without the script: any of its options (``%torchrun --help``).
        What follows ``--`` are the script's arguments. The script has nothing of the notebook's
        variables; it imports from the notebook's folder.
        """
        if not cell.strip():
            raise UsageError("This cell is empty: there is nothing for torchrun to run.")
        ipython.check_syntax(None, cell, first_line=2)
        name = ipython.cell_name(self.shell)
        # A comment where the magic's line was, so that line numbers stay.
        run(split(line), f"# %%torchrun {name}\n{cell}", name)

    @line_magic("torchrun")
    def line(self, line: str) -> None:
        """Run torchrun as in a terminal: ``%torchrun --nproc-per-node=2 script.py --epochs 3``."""
        run(split(line), None, ipython.cell_name(self.shell))


def split(line: str) -> list[str]:
    """Split a command line into words as a shell does.

    UsageError: if a quotation does not end.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The line of torchrun cannot be read ({error}): {line}") from None


def run(words: list[str], script: str | None, name: str) -> None:
    """Run torchrun in the output of a cell, and raise what went wrong.

    ``words``: torchrun's command line. ``script``: The text of the script, None if the command line
    names one. ``name``: What to call the cell.
    """
    with interrupts.shielded(), Job(words, script, name) as job:
        shown = live.Live(live.screen())

        def on_tick() -> None:
            if text := job.own.more():
                sys.stdout.write(text)
            shown.offer(job.workers.texts, job.watch.states, job.watch.suspicion())

        try:
            ended = job.end(job.follow(on_tick, live.patience()))
            shown.clear(wait=any(o.stdout or o.stderr for o in ended.outcomes))
        finally:
            shown.clear(wait=True)
        sys.stdout.write(job.own.more())
        if ended.report.own_way:
            sys.stderr.write(job.own_errors.more())
        show.show(ended.outcomes)
        if ended.error is not None:
            raise ended.error


def load(shell: Any) -> None:
    """Register the magics in a notebook."""
    if ipython.of_notebook() is not None:
        live.follow_output(shell)
    shell.register_magics(TorchrunMagics)
