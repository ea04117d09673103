"""Compare what an answer gave with what it should give, part by part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

#: What arithmetic in float64 may change in an integer.
ROUNDING = 1e-12


def number(value: Any) -> Any:
    """Return a tensor with one element as a number, anything else as it is."""
    import torch

    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def are_lists(*values: Any) -> bool:
    """Return whether all of these are lists or tuples."""
    return all(isinstance(value, list | tuple) for value in values)


def same(yours: Any, expected: Any, rel: float = 1e-5, abs: float = 1e-8) -> bool:
    """Return whether two values agree: exactly, floats within a tolerance (that of torch.allclose).

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
    if are_lists(yours, expected):
        return len(yours) == len(expected) and all(
            same(y, e, rel, abs) for y, e in zip(yours, expected, strict=True)
        )
    if isinstance(yours, Mapping) and isinstance(expected, Mapping):
        return yours.keys() == expected.keys() and all(
            same(yours[k], expected[k], rel, abs) for k in yours
        )
    if isinstance(yours, str) and isinstance(expected, str):  # words that show without quotes
        return str(yours) == str(expected)
    return type(yours) is type(expected) and bool(yours == expected)


class Comparison:
    """Two values side by side, and their parts. Each pair is compared once."""

    def __init__(self, yours: Any, expected: Any) -> None:
        self.yours = yours
        self.expected = expected

    @cached_property
    def equal(self) -> bool:
        """Whether the two agree."""
        return same(self.yours, self.expected)

    @cached_property
    def _all_parts(self) -> dict[Any, Comparison]:
        """The parts of both by key or place, ``MISSING`` for those that only one of them has."""
        if isinstance(self.yours, Mapping) != isinstance(self.expected, Mapping):
            return {}
        mine, its = map(_parts, (self.yours, self.expected))
        if mine is None or its is None:
            return {}
        keys = [*its, *(key for key in mine if key not in its)]
        return {key: Comparison(mine.get(key, MISSING), its.get(key, MISSING)) for key in keys}

    @cached_property
    def parts(self) -> dict[Any, Comparison]:
        """The parts by key or place; none if the two have others."""
        shapes = [getattr(value, "shape", None) for value in (self.yours, self.expected)]
        parts = self._all_parts
        missing = any(MISSING is v for part in parts.values() for v in (part.yours, part.expected))
        return {} if shapes[0] != shapes[1] or missing else parts

    def named(self, labels: Sequence[str]) -> list[tuple[str, Comparison]]:
        """Return the parts with their names: the keys of a dict, or the labels of a list of as many
        items; none if they have no names."""
        names = list(map(str, self.parts)) if isinstance(self.expected, Mapping) else labels
        if not isinstance(self.expected, Mapping | list | tuple) or len(names) != len(self.parts):
            return []
        return list(zip(names, self.parts.values(), strict=True))

    def entries(self, labels: Sequence[str]) -> list[tuple[str, Comparison]]:
        """Return the named parts that differ."""
        return [(name, part) for name, part in self.named(labels) if not part.equal]

    def leaves(self, path: str = "") -> list[tuple[str, Comparison]]:
        """Return the innermost parts that differ, each with its place: ``"[3]['loss']"``."""
        if self.equal:
            return []
        parts = self._all_parts.items()
        found = [leaf for key, part in parts for leaf in part.leaves(f"{path}[{key!r}]")]
        return found if parts else [(path, self)]


class _Missing:
    def __repr__(self) -> str:
        return "(nothing)"


#: Stands for something that one of the two has not.
MISSING = _Missing()


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return the parts of a value by key or place, None if it can have none."""
    if isinstance(value, Mapping):
        return dict(value)
    if are_lists(value) or bool(getattr(value, "ndim", 0)):
        return dict(enumerate(value))
    return None
