"""The errors that labkit raises: one clear sentence each.

All of them are in ``labkit`` itself, so that ``except labkit.StartError`` is all it takes::

    LabError                        whatever labkit cannot do
    ├── UsageError (ValueError)     wrong use: a name, a number or a text that is not allowed
    │   └── CellSyntaxError         a cell that does not parse
    ├── StartError                  ranks, or hosts, that cannot start
    ├── LabStopped                  there is no lab: it was stopped, has ended, was never started
    ├── DataError                   a file that is missing, damaged or cannot be written
    └── RankError                   what the ranks raised
        ├── Deadlock                ranks that blocked one another
        │   └── SuspectedDeadlock   so it seems, but something that labkit cannot see could come
        └── RankDied                a rank whose process ended
    Interrupted (KeyboardInterrupt) the stop button

A LabError of no other kind says that labkit cannot do it now: a rank does not answer, say.

Wrong use is a ValueError too: ``labkit.figures`` raises it, and whoever calls these as a library
expects that. The name is the one that IPython has for a magic used in a wrong way, and means the
same; labkit's own magics raise this one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

#: Columns of a sentence in a notebook's output.
WIDTH = 88


class LabError(Exception):
    """Say in one sentence what was wrong and what is allowed. Nothing was changed.

    A notebook shows the sentence alone: the frames inside labkit would tell a learner nothing.

    Examples
    --------
    >>> try:
    ...     lab["x y"]
    ... except labkit.LabError as error:
    ...     print(error)
    lab[…] must name one variable, as in lab["x"], got 'x y'.
    """

    def _render_traceback_(self) -> list[str]:  # IPython's own hook
        return [f"{red(type(self).__name__)}: {self}"]


class UsageError(LabError, ValueError):
    """Say which argument is not allowed, and which ones are.

    Examples
    --------
    >>> try:
    ...     lab.run(print, ranks=[4])
    ... except ValueError as error:
    ...     print(f"{type(error).__name__}: {error}")
    UsageError: There is no rank 4 here: ranks go from 0 to 3.
    """


class CellSyntaxError(UsageError):
    """Say where a cell does not parse; no rank ran anything of it.

    Examples
    --------
    >>> try:
    ...     lab.timeline("train(")
    ... except labkit.CellSyntaxError as error:
    ...     print(str(error).partition(":")[0])
    line 1 does not parse ('(' was never closed)
    """


class StartError(LabError):
    """Say why ranks or hosts cannot start; nothing is left running.

    Examples
    --------
    >>> try:
    ...     labkit.start(100_000)
    ... except labkit.StartError as error:
    ...     print(error)
    100000 ranks are more than this machine can hold: at most ... now.
    """


class LabStopped(LabError):
    """Say that there is no lab (any more): it was stopped, has ended or was never started.

    Examples
    --------
    >>> old = labkit.start(1)
    >>> old.stop()
    >>> try:
    ...     old.run(print)
    ... except labkit.LabStopped as error:
    ...     print(error)
    This lab was stopped; labkit.start() gives you a new one.
    """


class DataError(LabError):
    """Say which file is missing, damaged or cannot be written, and why.

    Examples
    --------
    >>> try:
    ...     labkit.datasets.mnist_tensors(size="subset", root="no/such/folder")
    ... except labkit.DataError as error:
    ...     print(str(error).partition(":")[0])
    The MNIST subset in no/such/folder cannot be used
    """


class RankError(LabError):
    """Report what the ranks raised: each distinct error once, with the ranks that raised it.

    ``str(error)`` has one line an error; the notebook shows the lines of the cell as well.

    Examples
    --------
    >>> try:
    ...     lab.run(lambda: 1 / 0)
    ... except labkit.RankError as error:
    ...     print(error)
    ranks 0–3: ZeroDivisionError: division by zero
    """

    def __init__(self, summary: str, blocks: Sequence[str]) -> None:
        super().__init__(summary)
        self.blocks = list(blocks)

    def _render_traceback_(self) -> list[str]:
        return self.blocks


class Deadlock(RankError):
    """Report ranks that blocked one another: who, in what, at which line, and why.

    They were freed and every variable is still there. ``str(error)`` has the whole message.

    Parameters
    ----------
    headline
        Who waits for whom, in one sentence.
    waits
        One line for each place where ranks wait, and for what the others did instead.
    cause
        The likely cause, in one sentence.
    done
        What labkit did about it.

    Examples
    --------
    >>> import torch
    >>> import torch.distributed as dist
    >>> def skip():
    ...     if dist.get_rank() != 2:
    ...         dist.all_reduce(torch.ones(1))
    >>> try:
    ...     lab.run(skip)
    ... except labkit.Deadlock as error:
    ...     print(str(error).splitlines()[0])
    ranks 0–1, 3 wait for rank 2, which has ended its cell.
    """

    def __init__(
        self, headline: str, waits: Sequence[str], cause: str, done: Sequence[str] = ()
    ) -> None:
        because = f"Cause: {cause}"
        shown = [f"{red(type(self).__name__)}: {headline}", *waits]
        shown.append(wrapped(because).replace("Cause:", "\x1b[1mCause:\x1b[0m", 1))
        # What labkit did is not part of the cause.
        shown += ["\n".join(["", *map(wrapped, done)])] if done else []
        super().__init__("\n".join([headline, *waits, because, *done]), ["\n".join(shown)])


class SuspectedDeadlock(Deadlock):
    """Report ranks that were blocked by all that labkit can see, and what it cannot see into.

    Raised only where nobody looks on (nbval, ``labkit run``, a script), when a deadlock was
    suspected for ``LABKIT_SUSPECT_SECONDS`` (60 by default). In a notebook the board says it, and
    the stop button decides.

    Examples
    --------
    >>> issubclass(labkit.SuspectedDeadlock, labkit.Deadlock)
    True
    """


def wrapped(sentence: str) -> str:
    """Break a sentence where a notebook would break it within a word; lines of tables stay."""
    if sentence.startswith(" "):
        return sentence
    return textwrap.fill(sentence, WIDTH, break_on_hyphens=False)


class Interrupted(KeyboardInterrupt):
    """Report an interrupt: where it reached the ranks, and what is left to do.

    A KeyboardInterrupt, so that whoever expects one gets it.

    Examples
    --------
    >>> import os, signal, threading, time
    >>> stop_button = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    >>> stop_button.start()
    >>> try:
    ...     lab.run(time.sleep, 60)
    ... except labkit.Interrupted as error:
    ...     print(str(error).splitlines()[0])
    ranks 0–3: stopped
    """

    def __init__(self, summary: str, blocks: Sequence[str]) -> None:
        super().__init__(summary)
        self.blocks = list(blocks)

    def _render_traceback_(self) -> list[str]:
        return self.blocks


class RankDied(RankError):
    """Report that the process of a rank ended, and how.

    Examples
    --------
    >>> import os, signal
    >>> try:
    ...     lab.run(lambda: os.kill(os.getpid(), signal.SIGKILL), ranks=[2])
    ... except labkit.RankDied as error:
    ...     print(str(error).splitlines()[0])
    rank 2 ended with signal 9 (SIGKILL).
    >>> lab.restart(ranks=[2])
    """


def red(text: str) -> str:
    """Colour a text as an error."""
    return f"\x1b[31m{text}\x1b[0m"


# A traceback names each as users find and catch it: labkit.Deadlock.
for _error in (
    *(LabError, UsageError, CellSyntaxError, StartError, LabStopped, DataError),
    *(RankError, Deadlock, SuspectedDeadlock, Interrupted, RankDied),
):
    _error.__module__ = "labkit"
del _error
