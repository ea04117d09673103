"""Tell whether what an answer gave is what it should give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: What arithmetic in float64 may change in an integer.
ROUNDING = 1e-12


def number(value: Any) -> Any:
    """Return a tensor with one element as a number, anything else as it is."""
    import torch

    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def same(yours: Any, expected: Any, rel: float = 1e-5, abs: float = 1e-8) -> bool:
    """Tell whether two values agree: exactly, floats within a tolerance (that of torch.allclose).

    An integer agrees with a float only where the last digits of float64 differ: an integer of 25
    bits that has gone through float32 is not the same any more. Lists agree where all their items
    do, tensors also in their shape. A tensor of one element is as good as the number that is
    expected.
    """
    import torch

    if isinstance(expected, int | float):  # a tensor of one element counts as the number
        yours = number(yours)
    if isinstance(yours, torch.Tensor) or isinstance(expected, torch.Tensor):
        if not (isinstance(yours, torch.Tensor) and isinstance(expected, torch.Tensor)):
            return False
        booleans = {yours.dtype == torch.bool, expected.dtype == torch.bool}
        if yours.shape != expected.shape or len(booleans) == 2:
            return False
        yours, expected = yours.detach().cpu(), expected.detach().cpu()
        floats = [t.is_floating_point() for t in (yours, expected)]
        if not any(floats):
            return bool(torch.equal(yours.long(), expected.long()))
        if not all(floats):
            rel = abs = ROUNDING
        return torch.allclose(yours.double(), expected.double(), rel, abs, equal_nan=True)
    if isinstance(yours, bool) or isinstance(expected, bool):
        return yours is expected
    if isinstance(yours, int | float) and isinstance(expected, int | float):
        integers = [isinstance(v, int) for v in (yours, expected)]
        if all(integers):
            return yours == expected
        if any(integers):
            rel = abs = ROUNDING
        return math.isclose(yours, expected, rel_tol=rel, abs_tol=abs) or (
            math.isnan(yours) and math.isnan(expected)
        )
    if isinstance(yours, list | tuple) and isinstance(expected, list | tuple):
        return len(yours) == len(expected) and all(
            same(y, e, rel, abs) for y, e in zip(yours, expected, strict=True)
        )
    if isinstance(yours, Mapping) and isinstance(expected, Mapping):
        return yours.keys() == expected.keys() and all(
            same(yours[k], expected[k], rel, abs) for k in yours
        )
    return type(yours) is type(expected) and bool(yours == expected)
