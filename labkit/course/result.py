"""Hold what an answer gave, compared once with what it should give and may take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..base.rank_names import label
from ..wire.trial import Found
from .compare import Comparison, are_lists, same
from .exercise import NOT_TRIED, Exercise, Failed, Goal


@dataclass(frozen=True)
class Cost:
    """What an answer took, beside what it may take."""

    goal: Goal
    limit: int
    counts: list[int]  #: by rank, 0 where nothing was counted
    missed: dict[int, int]  #: those that are not within the limit
    is_counted: bool  #: on all ranks


@dataclass
class Result:
    """What an answer gave on each rank (one entry for an answer in the notebook)."""

    exercise: Exercise
    world_size: int
    yours: list[Any]
    expected: list[Any]
    #: per rank what was counted; None where the trial did not end
    counts: list[Mapping[str, int] | None] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)  #: functions that were called all the same
    notes: list[str] = field(default_factory=list)  #: errors with their lines, and what was done
    waited: str = ""  #: what was said about ranks that were blocked, or whose time was up
    crossed: str = ""  #: what was said of groups that each rank has made for itself
    #: of a file the parts of its trial, in order, and whether each went as expected
    parts: list[tuple[str, bool]] = field(default_factory=list)
    found: Found = "written"  #: what there is by the answer's name; else nothing was tried

    @property
    def was_tried(self) -> bool:
        """Whether there was an answer by that name, so that it has been tried."""
        return self.found in ("written", "one size")

    @cached_property
    def ranks(self) -> list[Comparison]:
        """What each rank gave beside what it should give."""
        return [Comparison(*pair) for pair in zip(self.yours, self.expected, strict=True)]

    @cached_property
    def wrong(self) -> dict[int, Comparison]:
        """The ranks whose result differs from the expected one."""
        return {rank: pair for rank, pair in enumerate(self.ranks) if not pair.equal}

    @cached_property
    def gave_nothing(self) -> bool:
        """Whether all that is wrong is None."""
        return bool(self.wrong) and all(map(_is_nothing, self.wrong.values()))

    @cached_property
    def differing(self) -> list[str]:
        """The names of the entries that were tried and differ on any rank, if entries have
        names."""
        labels = self.exercise.labels(self.world_size)
        found = [
            name
            for pair in self.wrong.values()
            for name, part in pair.entries(labels)
            if not same(part.yours, NOT_TRIED)
        ]
        return list(dict.fromkeys(found))

    @cached_property
    def costs(self) -> list[Cost]:
        """What the answer took, for each goal."""
        costs = []
        for goal in self.exercise.goals:
            counts = [count[goal.measure] if count else 0 for count in self.counts]
            missed = {r: c for r, c in enumerate(counts) if not goal.is_met(c, self.world_size)}
            is_counted = len(counts) == self.world_size and None not in self.counts
            costs.append(Cost(goal, goal.limit(self.world_size), counts, missed, is_counted))
        return costs

    def on(self, ranks: Iterable[int]) -> str:
        """Return " on ranks 0–3", "" for an answer in the notebook."""
        return f" on {label(list(ranks))}" if self.exercise.where == "ranks" else ""

    @cached_property
    def cause(self) -> Failed | None:
        """What failed by itself; None if nothing did.

        A process that ended comes first, then an error in the learner's own lines, and of the same
        kind that of the lowest rank.
        """
        own = [y for y in self.yours if isinstance(y, Failed) and y.is_cause()]
        return min(own, key=lambda y: (y.name != "Died", not y.lines), default=None)


def _is_nothing(pair: Comparison) -> bool:
    """Return whether a value is None, or a list or dict of which each part that differs is.

    A trial of several parts looks at other things too, which are right. A part that is itself a
    list of None is something: it has been returned. So is None where another part has to be None.
    """
    both = (pair.yours, pair.expected)
    if are_lists(*both) or all(isinstance(value, Mapping) for value in both):
        parts = pair.parts.values()
        return bool(parts) and all(
            part.expected is not None and (part.equal or part.yours is None) for part in parts
        )
    own = pair.yours if are_lists(pair.yours) and pair.yours else [pair.yours]
    return all(part is None for part in own)
