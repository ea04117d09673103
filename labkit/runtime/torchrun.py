"""Run torchrun: read what its workers write, by rank, and turn their ends into one error."""

from __future__ import annotations

import codecs
import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from types import MappingProxyType

from ..base import interrupts, times
from ..base.errors import LabError, RankDied, UsageError, red, wrapped
from ..base.rank_names import label
from ..launch.torchrun import Report, Torchrun, make_folder
from ..launch.torchrun_owner import STDERR, STDOUT
from ..wire import texts as torch_texts
from ..wire.protocol import ERROR, FAILED, LOGS, RANK, SCRIPT
from ..wire.state import Outcome, describe_exit
from .error_texts import fold_errors
from .output import STREAMS, Screen
from .torchrun_watch import Watch, deadlock, stopped

#: An address with a port, as gloo writes it: ``[127.0.0.1]:13961``.
_PORT = re.compile(r"(\[[0-9a-f.:]+\]):\d+")
#: What a script says that was written for ``python -m torch.distributed.launch``.
_LOCAL_RANK_ASKED = re.compile(r"arguments are required: .*--local[-_]rank\b")
_LOCAL_RANK = (
    "torchrun gives a process its local rank in its environment, not as an argument: "
    'local_rank = int(os.environ["LOCAL_RANK"]).'
)


@dataclass(frozen=True)
class Raised:
    """An error with which a worker ended, as its process tells it."""

    type: str
    message: str  #: its first line
    text: str  #: the traceback

    def __post_init__(self) -> None:
        # They differ from run to run, and say nothing.
        for name in ("message", "text"):
            object.__setattr__(self, name, _PORT.sub(r"\1", getattr(self, name)))

    @property
    def is_consequence(self) -> bool:
        """Whether it only says that another worker, or the connection to it, has gone."""
        return bool(torch_texts.CONSEQUENCE.search(self.text))

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class File:
    """A file that grows, read as text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def more(self) -> str:
        """Return what is new."""
        try:
            with open(self._path, "rb") as stream:
                stream.seek(self._read)
                data = stream.read()
        except OSError:
            return ""
        self._read += len(data)
        return self._decoder.decode(data)


@dataclass
class Attempt:
    """What one worker has written since torchrun started it, or restarted it."""

    folder: Path
    number: int  #: of the attempt
    local_rank: int
    files: dict[str, File] = field(init=False)
    screens: dict[str, Screen] = field(init=False)

    def __post_init__(self) -> None:
        self.files = {name: File(self.folder / f"{name}.log") for name in STREAMS}
        self.screens = {name: Screen() for name in STREAMS}

    def read(self) -> None:
        """Take in what is new."""
        for name, file in self.files.items():
            if text := file.more():
                self.screens[name].write(text)

    @property
    def rank(self) -> int:
        """The worker's rank; its local one where the worker does not tell."""
        try:
            return int((self.folder / RANK).read_text())
        except (OSError, ValueError):
            return self.local_rank

    def raised(self) -> Raised | None:
        """Return the error with which it ended, None if there was none."""
        try:
            return Raised(**json.loads((self.folder / ERROR).read_text()))
        except (OSError, ValueError):
            return None


class Workers:
    """The workers of one run of torchrun, as the files in its private folder show them.

    ``cell`` is what to call the script of a cell: ``In[7]``.
    """

    def __init__(self, folder: Path, cell: str) -> None:
        self._folder = folder
        self._cell = cell
        self._attempts: dict[Path, Attempt] = {}

    def read(self) -> None:
        """Take in what is new."""
        for folder in (self._folder / LOGS).glob("*/attempt_*/*"):
            if folder not in self._attempts and folder.name.isdigit():
                number = int(folder.parent.name.rpartition("_")[2])
                self._attempts[folder] = Attempt(folder, number, int(folder.name))
        for attempt in self._attempts.values():
            attempt.read()

    def texts(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return what each rank has written to stdout and to stderr so far."""
        out, err = self._join("stdout"), self._join("stderr")
        return out, err

    def _join(self, stream: str, ends: Mapping[Path, str] | None = None) -> dict[int, str]:
        texts: dict[int, str] = {}
        for attempt in sorted(self._attempts.values(), key=lambda a: a.number):
            text = str(attempt.screens[stream]) + (ends or {}).get(attempt.folder, "")
            texts[attempt.rank] = texts.get(attempt.rank, "") + text
        return {rank: self._named(text) for rank, text in texts.items()}

    def _named(self, text: str) -> str:
        """Name the cell where Python names the file with its text."""
        return text.replace(str(self._folder / SCRIPT), self._cell)

    def outcomes(self, failed: Collection[int]) -> list[Outcome]:
        """Return what each rank has written, and the traceback of what ended it.

        Errors that only say that another worker has gone are left out, but for those of the
        workers that count as ``failed`` in the last attempt.
        """
        last = {attempt.folder for attempt in self.last_attempts()}
        ends = {
            attempt.folder: raised.text
            for attempt in self._attempts.values()
            if (raised := attempt.raised()) is not None
            and (not raised.is_consequence or (attempt.folder in last and attempt.rank in failed))
        }
        out, err = self._join("stdout"), self._join("stderr", ends)
        err = {rank: torch_texts.LOG_STACK.sub("", text) for rank, text in err.items()}
        return [Outcome(rank, out[rank], err[rank]) for rank in sorted(out)]

    def last_attempts(self) -> list[Attempt]:
        """Return the workers that torchrun has started last."""
        last = max((attempt.number for attempt in self._attempts.values()), default=0)
        return [attempt for attempt in self._attempts.values() if attempt.number == last]

    def last_errors(self) -> dict[int, Raised]:
        """Return the errors of the last attempt, by rank."""
        found = {attempt.rank: attempt.raised() for attempt in self.last_attempts()}
        return {rank: raised for rank, raised in found.items() if raised is not None}


def find_failed(
    failures: Mapping[int, int], raised: Mapping[int, Raised], ended: Collection[int]
) -> dict[int, int]:
    """Return the exit codes of the workers that failed by themselves, by rank.

    Those that torchrun has ended because of others, or that failed because others had gone, are
    among them only if there is nobody else. ``failures`` has all exit codes, ``raised`` the errors
    with which workers ended; ``ended`` are those that ended well: what others missed may be theirs.
    """

    def follows(rank: int, code: int) -> bool:
        gone = rank in raised and raised[rank].is_consequence
        return code == -SIGTERM or (code == FAILED and gone)

    own = {rank: code for rank, code in failures.items() if not follows(rank, code)}
    if own or not ended:
        return own or dict(failures)
    return {rank: code for rank, code in failures.items() if rank in raised} or dict(failures)


def judge(
    failed: Mapping[int, int],
    raised: Mapping[int, Raised],
    ended: Collection[int],
    outcomes: Iterable[Outcome] = (),
) -> RankDied | None:
    """Return the error to raise for workers that failed, None if none did; the rest as above."""
    if not failed:
        return None
    ends = fold_errors(
        {
            rank: (describe_exit(code), str(raised[rank]) if rank in raised else "")
            for rank, code in failed.items()
        }
    )
    said = [
        f"{label(ranks)} ended with {how}" + (f" ({why})" if why else "")
        for ranks, (how, why) in ends
    ]
    text = "; ".join(said) + "."
    if ended and all(rank in raised and raised[rank].is_consequence for rank in failed):
        one = len(ended) == 1
        cause = (
            f"Cause: {label(sorted(ended))} had ended {'its' if one else 'their'} script before. "
            "Every rank of a group has to make the same calls."
        )
        text = f"{text}\n{wrapped(cause)}"
    if any(_LOCAL_RANK_ASKED.search(o.stderr) for o in outcomes if o.rank in failed):
        text = f"{text}\n{wrapped(_LOCAL_RANK)}"
    return RankDied(text, [f"{red(RankDied.__name__)}: {text}"])


#: What torchrun's parser, and other code of it, say of themselves at the end of a failure.
_PREFIX = re.compile(r"^(?:[\w.]*\.)?(\w*(?:Error|Exception)): ")


def refusal_reason(report: Report) -> str:
    """Return why torchrun could not run, in its own words; "" if it could."""
    if report.refused:
        return f"torchrun cannot run this: {report.refused.rstrip('.')}."
    if not report.code or report.failures:
        return ""
    last = report.error.rpartition("\n")[2]
    said = ": " + _PREFIX.sub(r"\1: ", last) if last else "."
    return f"torchrun ended with {describe_exit(report.code)}{said}"


@dataclass(frozen=True)
class Ended:
    """How a run has ended."""

    outcomes: list[Outcome]  #: what each rank has written, with the traceback of its error
    report: Report
    raised: Mapping[int, Raised]  #: the errors with which workers ended, by rank
    failed: Mapping[int, int]  #: exit codes of the workers that failed by themselves, by rank
    error: BaseException | None  #: what went wrong, None if nothing did


class Job:
    """One run of torchrun and all that follows it. A context: at its end nothing is left of it.

    ``words``: torchrun's command line. ``script``: The text of the script, None if the command line
    names one. ``name``: What to call the cell. ``variables``: For the environment of the workers.
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
        """Return whether torchrun and all that it started are gone."""
        return self._torchrun.has_ended()

    def follow(self, on_tick: Callable[[], None], suspect: float | None) -> BaseException | None:
        """Wait until all workers are gone.

        Parameters
        ----------
        on_tick
            Called ten times a second, when all that is new has been read; what it raises ends the
            run.
        suspect
            Seconds that a deadlock may be suspected; None: until somebody stops it.

        Returns
        -------
        BaseException or None
            Why they are to be ended: the stop button, or workers that block forever.
        """
        try:
            with interrupts.cancellable():
                while not self._torchrun.has_ended():
                    if (case := self.watch.poll(times.WORKERS_LOOK)) is not None:
                        return deadlock(case)
                    suspicion = self.watch.suspicion()
                    if suspicion is not None and self.watch.outlasts(suspect):
                        return deadlock(suspicion.case)
                    self.workers.read()
                    on_tick()
        except KeyboardInterrupt:
            return stopped(self.watch.suspicion())
        return None

    def end(self, ending: BaseException | None) -> Ended:
        """End what still runs, and say how all of it went; ``ending`` is what ``follow`` gave."""
        self._torchrun.end()
        self.workers.read()
        report, raised = self._torchrun.report(), self.workers.last_errors()
        ended = {a.rank for a in self.workers.last_attempts()} - report.failures.keys()
        failed = find_failed(report.failures, raised, ended)
        error: BaseException | None = ending
        if error is None and (refusal := refusal_reason(report)):
            error = (UsageError if report.refused else LabError)(refusal)
        outcomes = self.workers.outcomes(failed)
        if error is None:
            error = judge(failed, raised, ended, outcomes)
        return Ended(outcomes, report, raised, failed, error)
