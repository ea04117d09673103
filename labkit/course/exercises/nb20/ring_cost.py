"""Predict the seconds of a ring all-reduce, for the exercise that compares with it."""

from __future__ import annotations


def ring(n: float, size: float, alpha: float, beta: float) -> float:
    """Return the seconds of a ring all-reduce: 2(n - 1) steps, each with an n-th of the tensor."""
    return 2 * (n - 1) * (alpha + size / n * beta)
