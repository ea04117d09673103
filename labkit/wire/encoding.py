"""Write dataclasses as what a message in JSON can carry, and read them again, key by key.

The two ends of a channel may run different versions of labkit: a key that is unknown or of another
type is an error, and so is a missing one that has no default.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Point:
...     x: int
...     names: Mapping[tuple[int, str], int]
>>> encode(Point(3, {(1, "a"): 2}))
{'x': 3, 'names': {'': [[[1, 'a'], 2]]}}
>>> decode(Point, encode(Point(3, {(1, "a"): 2})))
Point(x=3, names={(1, 'a'): 2})
>>> decode(Point, {"x": "a", "names": {}})
Traceback (most recent call last):
    ...
labkit.wire.encoding.ProtocolError: Point: Expected `int`, got `str` - at `$.x`
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
#: JSON's keys are strings only. The key of the list of pairs that stands for another mapping, or
#: for one that has this key itself.
_PAIRS = ""


class ProtocolError(Exception):
    """Say how a message differs from what it should be."""


def encode(value: Any) -> dict[str, Any]:
    """Write a dataclass as a dict of numbers, strings, lists and dicts (``enc_hook`` is asked about
    mappings that are no dict)."""
    plain: dict[str, Any] = _write(msgspec.to_builtins(value, enc_hook=dict))
    return plain


def decode(kind: type[T], plain: object) -> T:
    """Read what ``encode`` has written; what was a tuple, a set or a mapping is one again.

    Raises
    ------
    ProtocolError
        If a key is unknown, or missing without a default, or a value is of another type.
    """
    try:
        value = msgspec.convert(_read(plain), kind)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from None
    if unknown := _unknown_keys(plain, encode(value)):  # msgspec passes over those of dataclasses
        raise ProtocolError(f"{kind.__name__} has an unknown {', '.join(sorted(unknown))}")
    return value


def _unknown_keys(theirs: Any, ours: Any) -> set[str]:
    """Return the keys that only the first of two values has, which are alike otherwise."""
    if type(ours) is dict:
        inside = (_unknown_keys(theirs[k], ours[k]) for k in theirs.keys() & ours.keys())
        return (theirs.keys() - ours.keys()).union(*inside)
    if type(ours) is list:
        return set[str]().union(*map(_unknown_keys, theirs, ours))
    return set()


def _write(value: Any) -> Any:
    if type(value) is dict:
        if _PAIRS not in value and isinstance(next(iter(value), ""), str):
            return {key: _write(inner) for key, inner in value.items()}
        return {_PAIRS: [[_write(key), _write(inner)] for key, inner in value.items()]}
    return [_write(inner) for inner in value] if type(value) in (list, tuple) else value


def _read(plain: Any) -> Any:
    if type(plain) is dict:
        if _PAIRS in plain:
            return {_hashable(key): _read(inner) for key, inner in plain[_PAIRS]}
        return {key: _read(inner) for key, inner in plain.items()}
    return [_read(inner) for inner in plain] if type(plain) is list else plain


def _hashable(plain: Any) -> Any:
    return tuple(map(_hashable, plain)) if type(plain) is list else plain
