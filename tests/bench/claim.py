"""Say what a claim is, compare things alternately, and judge a claim by its bound."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Claim:
    """One row of docs/BENCHMARKS.md; once it was measured, with a figure."""

    name: str
    what: str  #: what is measured on both sides
    a: str
    b: str  #: what A is compared with; empty where the figure stands alone
    unit: str  #: of a single measurement
    figure_unit: str  #: "×" for a ratio A/B
    bound: float
    at_least: bool = False  #: True where a bigger figure is better
    figure: float | None = None  #: None until it was measured
    #: every single measurement, in the order taken; by "a", "b" or a name of its own
    measurements: dict[str, list[float]] = field(default_factory=dict)
    note: str = ""  #: what the figure alone does not say
    error: str = ""  #: why there is no figure

    @property
    def ok(self) -> bool:
        """Return whether the figure keeps to the bound."""
        if self.figure is None:
            return False
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound

    @property
    def verdict(self) -> str:
        """Return "ok", "over" (on the wrong side of its bound) or "failed" (no figure)."""
        return "failed" if self.figure is None else "ok" if self.ok else "over"

    def median(self, side: str) -> float | None:
        """Return the median measurement of "a" or "b", None where there is none."""
        taken = self.measurements.get(side)
        return statistics.median(taken) if taken else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything about the claim, for JSON."""
        return {**asdict(self), "verdict": self.verdict}


def alternate(
    rounds: int, measure: Mapping[str, Callable[[], Measured]]
) -> dict[str, list[Measured]]:
    """Take each measurement once a round: A B, B A, A B, …

    Neighbours in time share what the machine does meanwhile, and every second round goes
    backwards, so that what the first of a pair leaves behind helps or harms both sides alike.
    """
    out: dict[str, list[Measured]] = {name: [] for name in measure}
    for turn in range(rounds):
        names = list(measure) if turn % 2 == 0 else list(measure)[::-1]
        for name in names:
            out[name].append(measure[name]())
    return out


def median_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the median over the rounds of a/b, each round's two measurements being neighbours."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))
