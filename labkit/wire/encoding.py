"""Write dataclasses as what a message in JSON can carry, and read them again, key by key.

The two ends of a channel may run different versions of labkit: a key that is missing, unknown or
of another type is an error that names it, never a default.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Point:
...     x: int
...     name: str | None = None
>>> encode(Point(3))
{'x': 3, 'name': None}
>>> decode(Point, {"x": 3, "name": "a"})
Point(x=3, name='a')
>>> decode(Point, {"x": 3})
Traceback (most recent call last):
    ...
labkit.wire.encoding.ProtocolError: Point lacks 'name'
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
#: Turns one value into its plain form, or back.
Step = Callable[[Any], Any]


class ProtocolError(Exception):
    """Say how a message differs from what it should be."""


def encode(value: Any) -> dict[str, Any]:
    """Write a dataclass as a dict of numbers, strings, lists and dicts.

    Sets become lists, mappings become lists of pairs (JSON's keys are strings only).
    """
    plain: dict[str, Any] = _encoder(type(value))(value)
    return plain


def decode(kind: type[T], plain: object) -> T:
    """Read what ``encode`` has written; what was a tuple, a set or a mapping is one again.

    Raises
    ------
    ProtocolError
        If a key is missing or unknown, or a value is of another type.
    """
    value: T = _decoder(kind)(plain)
    return value


# Both ways are compiled once for each dataclass: a rank in a hurry writes ten samples a second.


def _make_encoder(kind: Any) -> Step:
    steps = [(name, _writer(hint)) for name, hint in _fields(kind).items()]
    if all(step is None for _, step in steps):
        names = [name for name, _ in steps]
        return lambda value: {name: getattr(value, name) for name in names}
    pairs = [(name, attrgetter(name), step) for name, step in steps]

    def write(value: Any) -> dict[str, Any]:
        return {n: step(get(value)) if step else get(value) for n, get, step in pairs}

    return write


#: A dataclass -> how to write one.
_encoder: Callable[[Any], Step] = cache(_make_encoder)


def _writer(hint: Any) -> Step | None:
    """Return how to write a value of a type, None if it can stay as it is."""
    if hint in _PLAIN:
        return None
    if dataclasses.is_dataclass(hint):
        return _encoder(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if _is_optional(hint):
        step = _writer(_without_none(inner))
        return step and _optional(step)
    if origin is tuple and inner[-1] is Ellipsis:
        step = _writer(inner[0])
        return step and _each(step)
    if origin is tuple:
        each = [_writer(i) for i in inner]
        if not any(each):
            return None
        return lambda value: [s(v) if s else v for s, v in zip(each, value, strict=True)]
    if origin is frozenset:
        return lambda value: sorted(value)
    if origin is Mapping:
        key, own = (_writer(i) or _same for i in inner)
        return lambda value: [[key(k), own(v)] for k, v in value.items()]
    raise TypeError(f"no message carries {hint!r}")


def _same(value: Any) -> Any:
    return value


def _each(step: Step) -> Step:
    return lambda values: [step(v) for v in values]


def _optional(step: Step) -> Step:
    return lambda value: None if value is None else step(value)


def _make_decoder(kind: Any) -> Step:
    readers = {name: _reader(hint) for name, hint in _fields(kind).items()}
    label = kind.__name__

    def read(plain: Any) -> Any:
        if not isinstance(plain, Mapping):
            raise ProtocolError(f"{label} must be a dict, got {plain!r}")
        if plain.keys() != readers.keys():
            raise ProtocolError(_difference(label, set(readers), set(plain)))
        values = []
        for name, reader in readers.items():
            try:
                values.append(reader(plain[name]))
            except _Unfit as unfit:
                raise ProtocolError(f"{label}.{name} must be {unfit}") from None
        return kind(*values)

    return read


#: A dataclass -> how to read one.
_decoder: Callable[[Any], Step] = cache(_make_decoder)


class _Unfit(Exception):
    """Say what a value must be, and what it is."""


def _difference(label: str, known: set[str], found: set[str]) -> str:
    """Say which keys are missing, and which nobody knows."""
    parts = []
    if missing := sorted(known - found):
        parts.append("lacks " + ", ".join(map(repr, missing)))
    if unknown := sorted(map(str, found - known)):
        parts.append("has an unknown " + ", ".join(map(repr, unknown)))
    return f"{label} {' and '.join(parts)}"


def _reader(hint: Any) -> Step:
    """Return how to read a value of a type."""
    if hint in _PLAIN:
        return _plain_reader(hint)
    if dataclasses.is_dataclass(hint):
        return _decoder(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if _is_optional(hint):
        return _optional(_reader(_without_none(inner)))
    if origin is tuple and inner[-1] is not Ellipsis:
        return _fixed_reader([_reader(i) for i in inner])
    if origin in (tuple, frozenset):
        step = _reader(inner[0])
        return lambda plain: origin([step(p) for p in _list(plain)])
    if origin is Mapping:
        pair = _fixed_reader([_reader(i) for i in inner])
        return lambda plain: dict(pair(p) for p in _list(plain))
    raise TypeError(f"no message carries {hint!r}")


def _plain_reader(kind: type) -> Step:
    accepted = _PLAIN[kind]

    def read(plain: Any) -> Any:
        if type(plain) not in accepted:
            raise _Unfit(f"of type {kind.__name__}, got {plain!r}")
        return plain

    return read


def _fixed_reader(steps: list[Step]) -> Step:
    """Return how to read a tuple of as many values, each with a type of its own."""

    def read(plain: Any) -> Any:
        if len(_list(plain)) != len(steps):
            raise _Unfit(f"a list of {len(steps)}, got {plain!r}")
        return tuple([step(p) for step, p in zip(steps, plain, strict=True)])

    return read


def _list(plain: Any) -> Any:
    if not isinstance(plain, list | tuple):
        raise _Unfit(f"a list, got {plain!r}")
    return plain


#: What JSON carries as it is: the types that a value of it may arrive as.
_PLAIN: dict[Any, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
}


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


def _without_none(inner: tuple[Any, ...]) -> Any:
    (own,) = [i for i in inner if i is not type(None)]
    return own


def _fields(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
