"""Describe an exercise: what is called, what it must give, and the usual ways to get it wrong.

This module needs neither torch nor ranks: the notebook's kernel imports it to show a hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base import times
from ..wire.protocol import MEASURES
from ..wire.trial import Here, Unusable
from .slips import Formula

#: Where an answer can live: among the names of the ``%%px`` cells, or of the notebook; or it is a
#: file beside the notebook.
PLACES = ("ranks", "notebook", "file")
#: The most hints of an exercise; each of the course has so many.
HINTS = 3
#: Ids of the course, and those that teachers give exercises of their own.
COURSE_ID, OWN_ID = re.compile(r"\d\d-\d+"), re.compile(r"[A-Za-z][\w-]*")
#: What files end with that are answers: of Python, and of a shell that Slurm starts.
ENDINGS = (".py", ".sbatch")
#: In the place of a part that a trial leaves out, because the part before it is wrong already.
NOT_TRIED = "not tried"
#: Names of failures that others have caused.
CONSEQUENCES = ("Stopped", "Deadlock", "TimedOut")
#: The collectives, for ``forbids`` of an exercise that is solved by messages.
COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip


@dataclass(frozen=True)
class Failed:
    """Stand in the place of a rank's value for what it raised instead of one.

    ``name`` is that of the error ("RuntimeError"); also "Died", and what is only a consequence:
    "Deadlock", "TimedOut" and "Stopped". ``lines`` are those of the learner's code that an error
    came through, outermost first. ``unusable`` says what the answer gave if that is not what
    raised the error, but the trial, which could not use it. ``part`` is that of a file's trial.
    """

    name: str
    message: str = ""
    lines: tuple[str, ...] = ()
    unusable: Unusable | None = None
    part: str = ""

    @classmethod
    def of_trial(cls, unusable: Unusable) -> Failed:
        """Return what stands for a value that the trial could not use."""
        return cls(unusable.error, unusable.message, unusable=unusable)

    def __str__(self) -> str:
        return self.name if self.unusable is None else self.unusable.returned or self.name

    def is_cause(self) -> bool:
        """Return whether it is an error of this rank's own, and not the consequence of another."""
        return self.name not in CONSEQUENCES

    def text(self) -> str:
        """Return name and message as Python tells an error, below it the lines of code and the
        part."""
        head = f"{self.name}: {self.message}" if self.message else self.name
        return "\n".join([head, *self.lines, *filter(None, [self.part])])


@dataclass(frozen=True)
class Goal:
    """Limit what an answer may cost on each rank: one of ``MEASURES``, as a function of the world
    size. Exactly one of ``most`` and ``exactly`` is given.

    Raises
    ------
    ValueError
        If the measure is unknown, or both or none of the two are given.
    """

    measure: str
    most: Callable[[int], int] | None = None
    exactly: Callable[[int], int] | None = None

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise ValueError(f"a goal measures one of {', '.join(MEASURES)}, not {self.measure!r}")
        if (self.most is None) == (self.exactly is None):
            raise ValueError("a goal has either most= or exactly=")

    def limit(self, world_size: int) -> int:
        """Return the number that is allowed."""
        function = self.most or self.exactly
        assert function is not None
        return int(function(world_size))

    def is_met(self, count: int, world_size: int) -> bool:
        """Return whether one rank's count is within the limit."""
        limit = self.limit(world_size)
        return count <= limit if self.most is not None else count == limit


@dataclass(frozen=True)
class Mistake:
    """Name a misconception by how it shows: by what it gives, raises, waits for or costs.

    Each way asks for something of its own, so that no slip is told a story about something else;
    a mistake with several of them needs one to be true.

    Parameters
    ----------
    sentence
        What the learner is told.
    when
        By what it gives: ``when(yours, expected, world_size)`` is true. Both are lists in rank
        order; with ``where="notebook"`` they are the values themselves, and of a file the dicts of
        the part that differs. Asked only if every rank
        has given a value.
    raises
        By an error: a regular expression that is found in ``"TypeError: the message"`` of the
        first rank that failed by itself, or in the lines below that, which are those of the
        learner's code that it came through. A process that ended is ``"Died: signal 6
        (SIGABRT)"``. It has to ask for the message: a type alone fits every typing error.
    stuck
        By a wait that never ends: a regular expression that is found in what labkit says about
        it, a deadlock's (headline, who waits where, cause) or that of ranks whose time was up.
        Asked only if no rank has raised an error of its own.
    missed
        By a goal that a right result has missed: ``"bytes sent"``.
    hint
        What ``labkit.hint()`` says first after this mistake.

    Raises
    ------
    ValueError
        If no way is given, or an expression fits everything.
    re.error
        If an expression cannot be read.
    """

    sentence: str
    when: Callable[[Any, Any, int], bool] | None = field(default=None, kw_only=True)
    raises: str | None = field(default=None, kw_only=True)
    stuck: str | None = field(default=None, kw_only=True)
    missed: str | None = field(default=None, kw_only=True)
    hint: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if all(way is None for way in (self.when, self.raises, self.stuck, self.missed)):
            raise ValueError("a mistake has when=, raises=, stuck= or missed=")
        for pattern in (self.raises, self.stuck):
            if pattern is not None and re.search(pattern, ""):
                raise ValueError(f"a mistake is shown by more than {pattern!r}, which fits all")


@dataclass(frozen=True)
class Exercise:
    """One exercise of a notebook.

    Parameters
    ----------
    id
        ``"03-2"``: the notebook's number and the exercise's. An exercise of your own has an id
        that begins with a letter, ``"my1"``.
    title
        As in the notebook.
    answer
        The name that the learner defines, or of the file that the learner writes.
    trial
        ``trial(answer, here)``, on every rank at the same time or in the notebook: uses the
        answer and returns small values. A module's function. Of a file, ``trial(path, seconds)``
        yields one part after another, each as its name and a dict of what was found; the first
        part that differs from the expected one ends the trial.
    expected
        ``expected(world_size)``: one value per rank, computed in one process; in the notebook
        ``expected()``: the value; of a file the dict of each part.
    entries
        Labels for the items of the list that the trial returns (on each rank), in the learner's
        own terms and units: the call that gave an item (``"share(7, 3)"``), or what it is
        (``"α in µs"``). As many as there are items; a function of the world size if their number
        depends on it.
    forbids
        Functions of ``torch.distributed`` that the answer must not call.
    goals
        What it may cost.
    mistakes
        What usually goes wrong; the first one that is true is named.
    formula
        What a result of numbers is computed by: a slip in it is found by what it gives.
    setup
        Source that has to run before an answer: what other cells of the notebook define.
    hints
        Three, each stronger than the one before; an exercise of your own may have fewer.
    seconds
        The time that the trial has; of a file each start of it.
    fewest
        With how many ranks an answer that contains the number of ranks as a constant is tried at
        least: 1 where a right answer works alone, too.
    where
        "ranks", or "notebook" for an answer that needs no ranks, or "file".
    start
        What a file begins as: a file of the course, ``"scripts/single.py"``.
    solution
        The cell that solves an exercise of your own; the course's are in its notebooks.

    Raises
    ------
    ValueError
        If ``where``, ``start`` or the number of hints is not allowed, or there are goals or
        forbidden calls where nothing is counted.
    """

    id: str
    title: str
    answer: str
    trial: Callable[[Any, Here], Any] | Callable[[Any, Any], Any]
    expected: Callable[..., Any]
    hints: Sequence[str] = ()
    mistakes: Sequence[Mistake] = ()
    formula: Formula | None = None
    entries: Sequence[str] | Callable[[int], Sequence[str]] = ()
    setup: str = ""
    forbids: Sequence[str] = ()
    goals: Sequence[Goal] = ()
    seconds: float = times.TRIAL
    fewest: int = 2
    where: str = "ranks"
    start: str = ""
    solution: str = ""

    def __post_init__(self) -> None:
        if not (COURSE_ID.fullmatch(self.id) or self.is_own):
            raise ValueError(
                f'an exercise\'s id is like "03-2", your own begins with a letter, as "my1" does; '
                f"not {self.id!r}"
            )
        if self.where not in PLACES:
            raise ValueError(f"{self.id}: where is one of {', '.join(PLACES)}, not {self.where!r}")
        if (self.where == "file") != bool(self.start):
            raise ValueError(f"{self.id}: a file, and nothing else, has start=")
        ending = next((end for end in ENDINGS if self.start and self.answer.endswith(end)), "")
        if not self.answer.removesuffix(ending).isidentifier():
            raise ValueError(f"{self.id}: the answer is a name, not {self.answer!r}")
        if self.where != "ranks" and (self.goals or self.forbids):
            raise ValueError(f"{self.id}: calls are counted on ranks only, and forbidden there")
        if len(self.hints) != HINTS and not self.is_own:
            raise ValueError(f"{self.id}: there are {HINTS} hints, not {len(self.hints)}")
        if len(self.hints) > HINTS:
            raise ValueError(f"{self.id}: there are at most {HINTS} hints, not {len(self.hints)}")

    def labels(self, world_size: int) -> tuple[str, ...]:
        """Return the labels of the items of a rank's list, none if the exercise has none."""
        return tuple(self.entries(world_size) if callable(self.entries) else self.entries)

    @property
    def is_own(self) -> bool:
        """Whether it is a teacher's own and none of the course, by its id."""
        return OWN_ID.fullmatch(self.id) is not None

    @property
    def is_python(self) -> bool:
        """Whether the answer is Python, by its name: that of a function, a class or a file."""
        return "." not in self.answer or self.answer.endswith(".py")
