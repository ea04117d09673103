"""``%%torchrun`` and ``%torchrun``: run a cell's text, or a script, under the real torchrun."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from .. import interrupts
from ..errors import Interrupted, LabError, UsageError
from ..launch.torchrun import Torchrun
from ..launch.torchrun_owner import STDERR, STDOUT
from ..rank_names import red
from ..runtime.torchrun import File, Workers, find_failed, judge, why_refused
from . import live, show
from . import shell as ipython

#: Seconds between two looks at what the workers have written.
LOOK_SECONDS = 0.1


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

    Raises
    ------
    UsageError
        If a quotation does not end.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The line of torchrun cannot be read ({error}): {line}") from None


def run(words: list[str], script: str | None, name: str) -> None:
    """Run torchrun in the output of a cell, and raise what went wrong.

    Parameters
    ----------
    words
        torchrun's command line.
    script
        The text of the script, None if the command line names one.
    name
        What to call the cell.
    """
    with interrupts.held():
        torchrun = Torchrun.start(words, script)
        shown = live.Live(live.screen(), board_after=-1)
        workers = Workers(torchrun.path, name)
        own = File(torchrun.path / STDOUT)
        stopped = False
        try:
            try:
                _follow(torchrun, workers, own, shown)
            except KeyboardInterrupt:
                stopped = True
            torchrun.end()
            workers.read()
            report, raised = torchrun.report(), workers.last_errors()
            failed = find_failed(report.failures, raised)
            outcomes = workers.outcomes(failed)
            shown.clear(wait=any(o.stdout or o.stderr for o in outcomes))
            sys.stdout.write(own.more())
            if report.own_way:
                sys.stderr.write(File(torchrun.path / STDERR).more())
            show.show(outcomes)
            if stopped:
                text = "torchrun was stopped, and all its workers with it."
                raise Interrupted(text, [f"{red('Interrupted')}: {text}"])
            if refusal := why_refused(report):
                raise (UsageError if report.refused else LabError)(refusal)
            if (error := judge(failed, raised)) is not None:
                raise error
        finally:
            shown.clear(wait=True)
            torchrun.close()


def _follow(torchrun: Torchrun, workers: Workers, own: File, shown: live.Live) -> None:
    """Show what the workers and torchrun itself write until all of them are gone.

    An interrupt is raised at once.
    """
    with interrupts.stoppable():
        while not torchrun.has_ended():
            interrupts.sleep(LOOK_SECONDS)
            workers.read()
            if text := own.more():
                sys.stdout.write(text)
            shown.offer(workers.texts, lambda: ())


def load(shell: Any) -> None:
    """Register the magics in a notebook."""
    from . import cell_output

    if ipython.of_notebook() is not None:
        cell_output.install(shell)
    shell.register_magics(TorchrunMagics)
