"""Compare DDP training that is shown live with the same ranks' training that is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from .child import Child, program
from .claim import Claim, alternate, median_ratio

RANKS = 4
STEPS = 500  #: in one stretch, some five seconds on two cores: the board comes after one
STRETCHES_A_ROUND = 2  #: of each side; five rounds make ten
SECONDS = 90.0  #: for the start, and for one stretch

CLAIM = Claim(
    name="board",
    what="DDP training, 4 ranks, prints and board shown live",
    a="shown",
    b="not shown",
    unit="images/s",
    figure_unit="×",
    bound=0.97,
    at_least=True,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Train shown and not shown, in turns, on the same ranks; watched both times.

    A first stretch of each is not counted.
    """
    with Child(program("board_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        sides = {"a": partial(lab.ask, f"shown {STEPS}"), "b": partial(lab.ask, f"hidden {STEPS}")}
        for side in sides.values():
            side()
        speeds = alternate(rounds * STRETCHES_A_ROUND, sides)
    return replace(CLAIM, figure=median_ratio(speeds["a"], speeds["b"]), measurements=speeds)
