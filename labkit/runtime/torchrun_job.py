"""Follow one run of torchrun to its end, and end it when nobody wants it any more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .. import interrupts, times
from ..errors import LabError, UsageError
from ..launch.torchrun import Report, Torchrun, make_folder
from ..launch.torchrun_owner import STDERR, STDOUT
from ..wire.outcome import Outcome
from .torchrun import File, Raised, Workers, find_failed, judge, why_refused
from .torchrun_watch import Watch, deadlock, stopped


@dataclass(frozen=True)
class Ended:
    """How a run has ended."""

    outcomes: list[Outcome]  #: what each rank has written, with the traceback of its error
    report: Report
    raised: Mapping[int, Raised]  #: the errors with which workers ended, by rank
    failed: Mapping[int, int]  #: exit codes of the workers that failed by themselves, by rank
    error: BaseException | None  #: what went wrong, None if nothing did


class Job:
    """One run of torchrun and all that looks on. A context: at its end nothing is left of it.

    Parameters
    ----------
    words
        torchrun's command line.
    script
        The text of the script, None if the command line names one.
    name
        What to call the cell.
    variables
        For the environment of the workers.

    Raises
    ------
    StartError
        If it cannot be started.
    """

    def __init__(
        self,
        words: Sequence[str],
        script: str | None,
        name: str,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        with contextlib.ExitStack() as close:
            close.callback((folder := make_folder()).remove)
            self.watch = Watch(folder.path)
            close.callback(self.watch.close)
            self._torchrun = Torchrun.start(folder, words, script, name, variables)
            close.callback(self._torchrun.end)
            self.workers = Workers(folder.path, name)
            self.own = File(folder.path / STDOUT)  #: what torchrun itself writes to stdout
            self.own_errors = File(folder.path / STDERR)  #: and to stderr
            self._stack = close.pop_all()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def has_ended(self) -> bool:
        """Tell whether torchrun and all that it started are gone."""
        return self._torchrun.has_ended()

    def follow(self, look: Callable[[], None], patience: float | None) -> BaseException | None:
        """Look on until all workers are gone.

        Parameters
        ----------
        look
            Called ten times a second, when all that is new has been read; what it raises ends the
            run.
        patience
            Seconds that a deadlock may be suspected; None: until somebody stops it.

        Returns
        -------
        BaseException or None
            Why they are to be ended: the stop button, or workers that wait in vain.
        """
        checked = False
        try:
            with interrupts.stoppable():
                while not self._torchrun.has_ended():
                    if (case := self.watch.look(times.WORKERS_LOOK)) is not None:
                        return deadlock(case)
                    suspicion = self.watch.suspicion()
                    if patience is None or suspicion is None or suspicion.seconds() < patience:
                        checked = False
                    elif checked:
                        return deadlock(suspicion.case)
                    else:
                        self.watch.look_again()
                        checked = True
                    self.workers.read()
                    look()
        except KeyboardInterrupt:
            return stopped(self.watch.suspicion())
        return None

    def end(self, ending: BaseException | None) -> Ended:
        """End what still runs, and say how all of it went; ``ending`` is what ``follow`` gave."""
        self._torchrun.end()
        self.workers.read()
        report, raised = self._torchrun.report(), self.workers.last_errors()
        ended = self.workers.last_ranks() - report.failures.keys()
        failed = find_failed(report.failures, raised, ended)
        error: BaseException | None = ending
        if error is None and (refusal := why_refused(report)):
            error = (UsageError if report.refused else LabError)(refusal)
        outcomes = self.workers.outcomes(failed)
        if error is None:
            error = judge(failed, raised, ended, outcomes)
        return Ended(outcomes, report, raised, failed, error)
