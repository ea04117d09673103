"""Compare labkit's start with torchrun's: from nothing to a finished all_reduce on four ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .child import program, time_to_answer, torchrun
from .claim import Claim, alternate, median_ratio

RANKS = 4
SECONDS = 60.0  #: for one start

CLAIM = Claim(
    name="start",
    what="start to all_reduce, 4 ranks",
    a="labkit",
    b="torchrun",
    unit="s",
    figure_unit="×",
    bound=0.55,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Start both ``rounds`` times, each in fresh processes."""
    times = alternate(
        rounds,
        {
            "a": lambda: time_to_answer(program("start_labkit", RANKS), seconds=SECONDS, env=env),
            "b": lambda: time_to_answer(
                torchrun("start_torchrun", RANKS), seconds=SECONDS, env=env
            ),
        },
    )
    figure = median_ratio(times["a"], times["b"])
    return replace(CLAIM, figure=figure, measurements=times)
