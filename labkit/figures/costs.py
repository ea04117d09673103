"""Model what communication costs: latency and bandwidth of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..base.errors import UsageError
from .chart import measured
from .style import format_seconds


class AlphaBeta(NamedTuple):
    """The cost of a call that moves n bytes: t = α + β·n (Hockney 1994, Parallel Computing 20).

    >>> labkit.figures.AlphaBeta(alpha=1e-4, beta=1e-9).seconds(1e6)
    0.0011
    """

    #: Seconds that every call costs, however little it moves.
    alpha: float
    #: Seconds for each byte.
    beta: float

    def seconds(self, size: float) -> float:
        """Return the time of a call that moves ``size`` bytes.

        >>> labkit.figures.AlphaBeta(alpha=1e-4, beta=1e-9).seconds(0)
        0.0001
        """
        return self.alpha + self.beta * size

    def describe(self) -> str:
        """Write both costs.

        >>> labkit.figures.AlphaBeta(alpha=1e-4, beta=1e-9).describe()
        'α = 100 µs, 1/β = 1 GB/s'
        """
        rate = f"{1 / self.beta / 1e9:.3g} GB/s" if self.beta > 0 else "∞"
        return f"α = {format_seconds(self.alpha)}, 1/β = {rate}"


def fit_alpha_beta(sizes: Sequence[float], seconds: Sequence[float]) -> AlphaBeta:
    """Fit t = α + β·n to measured times.

    Least squares of the *relative* errors: times span decades, and with absolute ones the largest
    messages alone would decide, and α be anything. Neither α nor β gets below zero.

    Parameters
    ----------
    sizes
        Bytes of each measured call; at least two different ones.
    seconds
        Its time.

    Examples
    --------
    >>> cost = labkit.figures.fit_alpha_beta([1e3, 1e6], [2e-4, 1.2e-3])
    >>> f"{cost.alpha * 1e6:.0f} µs a call, {1 / cost.beta / 1e9:.1f} GB/s"
    '199 µs a call, 1.0 GB/s'
    """
    n, t = measured(sizes, seconds, "sizes", "seconds")
    if len(np.unique(n)) < 2:
        raise UsageError("a line needs at least two different message sizes")
    # minimise |A (α, β) - 1|², where a row of A is (1, n) / t
    rows = np.column_stack([1 / t, n / t])
    scale = np.linalg.norm(rows, axis=0)
    alpha, beta = np.linalg.lstsq(rows / scale, np.ones_like(t), rcond=None)[0] / scale
    if alpha < 0:
        alpha, beta = 0.0, rows[:, 1].sum() / scale[1] ** 2
    elif beta < 0:
        alpha, beta = rows[:, 0].sum() / scale[0] ** 2, 0.0
    return AlphaBeta(float(alpha), float(beta))
