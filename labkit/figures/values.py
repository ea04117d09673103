"""Take apart what a rank holds: tensors become small arrays of plain values, and text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UsageError

#: Largest number of values of one rank that a picture can show.
MAX_VALUES = 16


def pieces(entry: Any) -> list[np.ndarray]:
    """Turn what a rank holds into arrays, one a tensor, each with one or two dimensions.

    Parameters
    ----------
    entry
        A tensor, an array, a number, a list of numbers (one tensor), a list of tensors, or None.
        A tensor of more than two dimensions becomes rows as long as its last one.

    Raises
    ------
    UsageError
        If there are more than 16 values, or something else than numbers.
    """
    arrays = tensors(entry)
    count = sum(array.size for array in arrays)
    if count > MAX_VALUES:
        raise UsageError(f"a rank holds {count} values; a picture shows at most {MAX_VALUES}")
    return arrays


def tensors(entry: Any) -> list[np.ndarray]:
    """Turn what a rank holds into arrays as ``pieces`` does, however many values there are."""
    if entry is None:
        return []
    if isinstance(entry, list | tuple) and entry and not np.isscalar(entry[0]):
        return [_array(item) for item in entry]
    return [_array(entry)]


def values(arrays: Sequence[np.ndarray]) -> list[float | int | bool]:
    """List every value in the order in which they are drawn."""
    flat = [value for array in arrays for value in array.ravel().tolist()]
    # one NaN for all, so that a set finds it
    return [value if value == value else math.nan for value in flat]


def number(value: float | int | bool) -> str:
    """Write a value in at most nine characters: four digits, whole numbers below 1e6 in full."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int) and abs(value) < 1_000_000:
        return str(value)
    # + 0.0 turns -0 into 0; 1.5e+06 is written 1.5e6
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value + 0.0:.4g}")


def text(arrays: Sequence[np.ndarray]) -> str:
    """Write what a rank holds on one line: ``[1 2] [3 4]``, rows as ``[[1 2] [3 4]]``."""
    return " ".join(_bracketed(array) for array in arrays) if arrays else "–"


def _bracketed(array: np.ndarray) -> str:
    parts = (number(v) for v in array.tolist()) if array.ndim == 1 else map(_bracketed, array)
    return "[" + " ".join(parts) + "]"


def _array(item: Any) -> np.ndarray:
    if hasattr(item, "detach"):
        item = item.detach().cpu()
        # numpy has no bfloat16 and no 8-bit floats
        item = (item.float() if item.is_floating_point() else item).numpy()
    array = np.asarray(item)
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"a rank holds {_name(item)}: a picture shows tensors and lists of bool, int or float"
        )
    return np.atleast_1d(array) if array.ndim < 2 else array.reshape(-1, array.shape[-1])


def _name(item: Any) -> str:
    kind = getattr(item, "dtype", None) or type(item).__name__
    return f"values of type {kind}"
