"""Compare DDP training that is shown live with the same ranks' training that is not."""

from __future__ import annotations

from collections.abc import Mapping

from .claim import Claim
from .watch import train_in_turns

STEPS = 500  #: in one stretch, some five seconds on two cores: the board comes after one
STRETCHES_A_ROUND = 2  #: of each side; five rounds make ten

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
    """Train shown and not shown, in turns; watched both times."""
    kinds = {"a": f"shown {STEPS}", "b": f"watched {STEPS}"}
    return train_in_turns(CLAIM, kinds, rounds * STRETCHES_A_ROUND, env)
