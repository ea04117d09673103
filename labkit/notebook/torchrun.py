"""``%%torchrun`` and ``%torchrun``: run a cell's text, or a script, under the real torchrun."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from .. import interrupts
from ..errors import LabError, UsageError
from ..launch.torchrun import Torchrun, make_folder
from ..launch.torchrun_owner import STDERR, STDOUT
from ..runtime.torchrun import File, Workers, find_failed, judge, why_refused
from ..runtime.torchrun_watch import Watch, deadlock, stopped
from . import live, show
from . import shell as ipython

#: Seconds between two looks at the workers.
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
    with interrupts.held(), contextlib.ExitStack() as close:
        close.callback((folder := make_folder()).remove)
        watch = Watch(folder.path)
        close.callback(watch.close)
        torchrun = Torchrun.start(folder, words, script, name)
        close.callback(torchrun.end)
        shown = live.Live(live.screen())
        close.callback(lambda: shown.clear(wait=True))
        workers, own = Workers(torchrun.path, name), File(torchrun.path / STDOUT)
        ending = _follow(torchrun, watch, workers, own, shown)
        torchrun.end()
        workers.read()
        report, raised = torchrun.report(), workers.last_errors()
        ended = workers.last_ranks() - report.failures.keys()
        failed = find_failed(report.failures, raised, ended)
        outcomes = workers.outcomes(failed)
        shown.clear(wait=any(o.stdout or o.stderr for o in outcomes))
        sys.stdout.write(own.more())
        if report.own_way:
            sys.stderr.write(File(torchrun.path / STDERR).more())
        show.show(outcomes)
        if ending is not None:
            raise ending
        if refusal := why_refused(report):
            raise (UsageError if report.refused else LabError)(refusal)
        if (error := judge(failed, raised, ended)) is not None:
            raise error


def _follow(
    torchrun: Torchrun, watch: Watch, workers: Workers, own: File, shown: live.Live
) -> BaseException | None:
    """Show what the workers and torchrun itself write until all of them are gone.

    Returns
    -------
    BaseException or None
        Why they are to be ended: the stop button, or workers that wait in vain.
    """
    patience, checked = live.patience(), False
    try:
        with interrupts.stoppable():
            while not torchrun.has_ended():
                if (case := watch.look(LOOK_SECONDS)) is not None:
                    return deadlock(case)
                suspicion = watch.suspicion()
                if patience is None or suspicion is None or suspicion.seconds() < patience:
                    checked = False
                elif checked:
                    return deadlock(suspicion.case)
                else:
                    watch.look_again()
                    checked = True
                workers.read()
                if text := own.more():
                    sys.stdout.write(text)
                shown.offer(workers.texts, watch.states, suspicion)
    except KeyboardInterrupt:
        return stopped(watch.suspicion())
    return None


def load(shell: Any) -> None:
    """Register the magics in a notebook."""
    from . import cell_output

    if ipython.of_notebook() is not None:
        cell_output.install(shell)
    shell.register_magics(TorchrunMagics)
