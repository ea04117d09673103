"""Model what communication costs: latency and bandwidth of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import UsageError


class AlphaBeta(NamedTuple):
    """The cost of a call that moves n bytes: t = α + β·n (Hockney 1994, Parallel Computing 20).

    Examples
    --------
    >>> cost = labkit.figures.AlphaBeta(alpha=1e-4, beta=1e-9)
    >>> cost.seconds(1e6)
    0.0011
    """

    #: Seconds that every call costs, however little it moves.
    alpha: float
    #: Seconds for each byte.
    beta: float

    def seconds(self, size: float) -> float:
        """Return the time of a call that moves ``size`` bytes.

        Examples
        --------
        >>> labkit.figures.AlphaBeta(alpha=1e-4, beta=1e-9).seconds(0)
        0.0001
        """
        return self.alpha + self.beta * size


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

    Raises
    ------
    UsageError
        If the two do not fit each other, or a value is not above zero.

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


def bus_factor(collective: str, world_size: int) -> float:
    """Return what a call's size / time is multiplied with to get its bus bandwidth.

    It is how many times its size a rank must send at least, so that bus bandwidths compare with
    the hardware's, whatever the collective and the number of ranks (doc/PERFORMANCE.md of
    https://github.com/NVIDIA/nccl-tests).

    Raises
    ------
    UsageError
        If the collective is unknown, or there are fewer than two ranks.

    Examples
    --------
    >>> labkit.figures.bus_factor("all_reduce", 4)
    1.5
    >>> labkit.figures.bus_factor("broadcast", 4)
    1.0
    """
    if world_size < 2:
        raise UsageError(f"bus bandwidth needs at least 2 ranks, not {world_size}")
    n = world_size
    factors = {
        "all_reduce": 2 * (n - 1) / n,
        "all_gather": (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "all_to_all": (n - 1) / n,
        "broadcast": 1.0,
        "reduce": 1.0,
        "sendrecv": 1.0,
    }
    if collective not in factors:
        raise UsageError(f"collective is {collective!r}: give one of {', '.join(factors)}")
    return factors[collective]


def bus_bandwidth(collective: str, size: float, seconds: float, world_size: int) -> float:
    """Return the bus bandwidth of a call in bytes a second.

    Parameters
    ----------
    collective
        all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce or sendrecv.
    size
        Bytes of the whole tensor; for all_gather and reduce_scatter that is the large one, with
        a part for every rank.
    seconds
        Time of the call.
    world_size
        Number of ranks.

    Examples
    --------
    >>> labkit.figures.bus_bandwidth("all_reduce", size=1e9, seconds=0.5, world_size=4) / 1e9
    3.0
    """
    if not (size > 0 and seconds > 0):
        raise UsageError(f"size ({size} bytes) and time ({seconds} s) must be above zero")
    return bus_factor(collective, world_size) * size / seconds


def measured(
    x: Sequence[float], y: Sequence[float], x_name: str, y_name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return measured points as two arrays in the order of x, or say what is wrong with them."""
    points = [np.asarray(values, dtype=float).reshape(-1) for values in (x, y)]
    if len(points[0]) != len(points[1]):
        raise UsageError(
            f"{x_name} has {len(points[0])} values, {y_name} {len(points[1])}: give pairs"
        )
    if not len(points[0]):
        raise UsageError(f"{x_name} is empty: there is nothing to draw")
    for name, values in zip((x_name, y_name), points, strict=True):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise UsageError(f"{name} has values that are not above zero")
    order = np.argsort(points[0], kind="stable")
    return points[0][order], points[1][order]
