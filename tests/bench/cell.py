"""Compare an empty ``%%px`` cell with the stock magic's on a stock cluster."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from .child import Child, program
from .claim import Claim, median_ratio

CELLS_A_ROUND = 40  #: of each magic; five rounds make two hundred
SECONDS = 400.0  #: for the start of both, and for one round


@dataclass(frozen=True)
class Cells:
    """The claim for one number of ranks."""

    ranks: int
    bound: float

    @property
    def CLAIM(self) -> Claim:
        """Return the claim."""
        return Claim(
            name=f"cell-{self.ranks}",
            what=f"empty %%px cell, {self.ranks} ranks",
            a="labkit",
            b="stock magic on a stock cluster",
            unit="s",
            figure_unit="×",
            bound=self.bound,
        )

    def measure(self, rounds: int, env: Mapping[str, str]) -> Claim:
        """Run empty cells in turns, each magic on processes of its own; pair neighbours.

        What all processes of a side take of the processors while it runs is the second figure: on
        a machine that others use, it is the steadier one.
        """
        with Child(program("cells", self.ranks), seconds=SECONDS, env=env) as shell:
            answers = [shell.ask(f"px pxelsewhere {CELLS_A_ROUND}") for _ in range(rounds)]
        return judge(self.CLAIM, answers)


def judge(claim: Claim, answers: list[dict[str, Any]]) -> Claim:
    """Make a measured claim of what the program has answered, a round each."""
    sides = [answer["seconds"] for answer in answers]
    a, b = (list(chain.from_iterable(side)) for side in zip(*sides, strict=True))
    cpu_a, cpu_b = (list(side) for side in zip(*(x["processors"] for x in answers), strict=True))
    took = [statistics.median(side) * 1000 for side in (cpu_a, cpu_b)]
    return replace(
        claim,
        figure=median_ratio(a, b),
        measurements={"a": a, "b": b, "processors of a": cpu_a, "processors of b": cpu_b},
        note=f"{median_ratio(cpu_a, cpu_b):.3g} × in time of processors, "
        f"{took[0]:.3g} ms per cell instead of {took[1]:.3g}",
    )


#: With 32 ranks on two cores, what idle ranks do beside (heartbeats, gloo's threads) weighs more.
SIZES = [Cells(4, 0.6), Cells(16, 0.6), Cells(32, 0.7)]
