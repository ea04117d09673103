"""Compare labkit's start with that of a stock ipyparallel cluster, up to the same all_reduce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .child import program, time_to_answer
from .claim import Claim, alternate, median_ratio

RANKS = 4
SECONDS = 90.0  #: for one start

CLAIM = Claim(
    name="stock",
    what="start to all_reduce, 4 ranks",
    a="labkit",
    b="stock cluster, group by hand",
    unit="s",
    figure_unit="×",
    bound=0.35,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Start both ``rounds`` times, each in fresh processes."""
    times = alternate(
        rounds,
        {
            "a": lambda: time_to_answer(program("start_labkit", RANKS), seconds=SECONDS, env=env),
            "b": lambda: time_to_answer(program("start_stock", RANKS), seconds=SECONDS, env=env),
        },
    )
    return replace(CLAIM, figure=median_ratio(times["a"], times["b"]), measurements=times)
