"""Count the CPU time of the watch while ranks train with DDP, as a share of all that there is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from .child import BenchError, Child, program
from .claim import Claim

RANKS = 4
STEPS = 300  #: in one stretch, two to four seconds on two cores
STRETCHES_A_ROUND = 2  #: five rounds make ten
SECONDS = 90.0  #: for the start, and for one stretch
#: A watch that takes less time than this on a rank, per second, has not looked at it.
LEAST = 1e-6

CLAIM = Claim(
    name="watch",
    what="DDP training, 4 ranks: the watch's share of the processors",
    a="labkit",
    b="",
    unit="",
    figure_unit="",
    bound=0.01,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Train watched; divide what the watch takes, on all ranks and in the notebook, by the time
    of the processors that the ranks can use: one each, as far as there are.

    CPU time is counted, not throughput compared: two runs of the same training differ by more
    than a hundredth on a machine that does anything else, and a bound that noise can break is
    no check. Nor is the training's own CPU time what it is divided by: the watch looks so many
    times a second, however little of that second other programs leave to the training. A first
    stretch is not counted.

    Raises
    ------
    BenchError
        If the watch took no time at all on some rank: then nothing was watched.
    """
    shares, ranks, notebook = [], [], []
    with Child(program("watch_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        lab.ask(STEPS)
        for _ in range(rounds * STRETCHES_A_ROUND):
            took = lab.ask(STEPS)
            if min(took["ranks"]) < LEAST * took["wall"]:
                raise BenchError(f"a rank was not watched: {took}")
            watch = sum(took["ranks"]) + took["notebook"]
            shares.append(watch / (took["wall"] * min(RANKS, took["cores"])))
            ranks.append(sum(took["ranks"]) / RANKS / took["wall"])
            notebook.append(took["notebook"] / took["wall"])
    milliseconds = [1000 * statistics.median(taken) for taken in (ranks, notebook)]
    return replace(
        CLAIM,
        figure=statistics.median(shares),
        measurements={"a": shares, "seconds per rank and second": ranks,
                      "seconds in the notebook per second": notebook},
        note="the watch takes {:.2f} ms of CPU time per second on each rank, {:.2f} ms in the "
        "notebook's process".format(*milliseconds),
    )  # fmt: skip
