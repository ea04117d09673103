"""Compare an empty ``%%px`` cell with the stock magic's, on the same ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from .child import Child, program
from .claim import Claim, median_ratio

RANKS = 4
CELLS_A_ROUND = 60  #: of each magic; five rounds make three hundred
SECONDS = 90.0  #: for the start, and for one round

CLAIM = Claim(
    name="cell",
    what="empty %%px cell, 4 ranks",
    a="labkit",
    b="stock magic on the same ranks",
    unit="s",
    figure_unit="×",
    bound=1.1,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Run empty cells in turns: labkit's magic and the stock one on the same ranks.

    That leaves the magics as the only difference. What labkit does on a rank (naming cells,
    formatting errors) is then on both sides, so its cells take turns with those of a stock
    cluster as well; not in the same turns, where each would find the caches as another left them.
    """
    with Child(program("cells", RANKS), seconds=SECONDS, env=env) as shell:
        same = [shell.ask(f"px pxstock {CELLS_A_ROUND}") for _ in range(rounds)]
        other = [shell.ask(f"px pxelsewhere {CELLS_A_ROUND}") for _ in range(rounds)]
    a, b = (list(chain.from_iterable(side)) for side in zip(*same, strict=True))
    beside, elsewhere = (list(chain.from_iterable(side)) for side in zip(*other, strict=True))
    return replace(
        CLAIM,
        figure=median_ratio(a, b),
        measurements={
            "a": a,
            "b": b,
            "a, in turns with a stock cluster": beside,
            "stock magic on a stock cluster": elsewhere,
        },
        note=f"{median_ratio(beside, elsewhere):.3g} × the stock magic on a stock cluster",
    )
