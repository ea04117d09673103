"""Race ways to average gradients for notebook 06, and set them beside what was predicted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import torch

from .race import clock

K = TypeVar("K", bound=Hashable)
#: The seconds of a step by the number of buckets, for each way to average.
Times = Mapping[str, Sequence[float]]


def time_steps(
    steps: Mapping[K, Callable[[], object]], device: torch.device, turns: int = 5
) -> dict[K, list[float]]:
    """Return the seconds of each turn of each step, by the rules of ``race.py``.

    One turn warms up, the steps take turns, and the slowest rank counts. All ranks call this.
    """
    functions = [lambda x, n, step=step: step() for step in steps.values()]
    times = clock(functions, torch.zeros(1, device=device), repetitions=turns)
    return dict(zip(steps, times, strict=True))


def table(counts: Sequence[int], measured: Times, predicted: Times) -> str:
    """Return one line per number of buckets: what each way took, and in parentheses should take."""
    lines = ["ms per step, measured (predicted)", "  ".join(["buckets", *measured])]
    for k, count in enumerate(counts):
        cells = [f"{count:7}"]
        for name, times in measured.items():
            pair = f"{1e3 * times[k]:.0f} ({1e3 * predicted[name][k]:.0f})"
            cells.append(f"{pair:>{len(name)}}")
        lines.append("  ".join(cells))
    return "\n".join(lines)


def errors(measured: Times, predicted: Times) -> list[float]:
    """Return by what share of the prediction each measured time differs from it."""
    return [
        abs(mine / its - 1)
        for name in measured
        for mine, its in zip(measured[name], predicted[name], strict=True)
    ]
