"""Compare DDP training that is watched with the same ranks' training that nobody watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

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
    """Train watched and unwatched, in turns."""
    kinds = {"a": f"watched {STEPS}", "b": f"unwatched {STEPS}"}
    return train_in_turns(CLAIM, kinds, rounds * STRETCHES_A_ROUND, env)


def train_in_turns(
    claim: Claim, kinds: Mapping[str, str], stretches: int, env: Mapping[str, str]
) -> Claim:
    """Let the same lab train in two ways, in turns; a first stretch of each is not counted."""
    with Child(program("watch_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        sides = {side: partial(lab.ask, kind) for side, kind in kinds.items()}
        for side in sides.values():
            side()
        speeds = alternate(stretches, sides)
    return replace(claim, figure=median_ratio(speeds["a"], speeds["b"]), measurements=speeds)
