"""Compare DDP training in ``%%px`` cells with the same training under torchrun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .child import Child, program, torchrun
from .claim import Claim, alternate, median_ratio

RANKS = 4
STEPS = 50  #: in one stretch, about half a second on two cores
STRETCHES_A_ROUND = 8  #: of each side; five rounds make forty
SECONDS = 90.0  #: for the start, and for one stretch

CLAIM = Claim(
    name="ddp",
    what="DDP training, 4 ranks",
    a="labkit, %%px cells",
    b="torchrun",
    unit="images/s",
    figure_unit="×",
    bound=0.97,
    at_least=True,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Keep both sides alive and let them train in turns; the one that waits does not compute.

    A first stretch on each side is not counted: caches, DDP's buckets and allocators settle.
    """
    with (
        Child(program("ddp_labkit", RANKS), seconds=SECONDS, env=env) as lab,
        Child(torchrun("ddp_torchrun", RANKS), seconds=SECONDS, env=env) as script,
    ):
        lab.ask(STEPS)
        script.ask(STEPS)
        speeds = alternate(
            rounds * STRETCHES_A_ROUND,
            {"a": lambda: lab.ask(STEPS), "b": lambda: script.ask(STEPS)},
        )
    figure = median_ratio(speeds["a"], speeds["b"])
    return replace(CLAIM, figure=figure, measurements=speeds)
