"""Compare DDP training that is watched with the same ranks' training that nobody watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .child import Child, program
from .claim import Claim, alternate, median_ratio

RANKS = 4
STEPS = 150  #: in one stretch, one to two seconds on two cores
STRETCHES_A_ROUND = 4  #: of each side; five rounds make twenty
SECONDS = 90.0  #: for the start, and for one stretch

CLAIM = Claim(
    name="watch",
    what="DDP training, 4 ranks, watched for deadlocks",
    a="watched",
    b="not watched",
    unit="images/s",
    figure_unit="×",
    bound=0.99,
    at_least=True,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Let the same lab train in turns; a first stretch of each side is not counted."""
    with Child(program("watch_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        sides = {
            "a": lambda: lab.ask(f"watched {STEPS}"),
            "b": lambda: lab.ask(f"unwatched {STEPS}"),
        }
        for side in sides.values():
            side()
        speeds = alternate(rounds * STRETCHES_A_ROUND, sides)
    return replace(CLAIM, figure=median_ratio(speeds["a"], speeds["b"]), measurements=speeds)
