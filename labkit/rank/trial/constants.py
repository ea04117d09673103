"""Look for constants in an answer that may stand for the number of ranks.

Many do not: what is found here is a reason to try the answer on fewer ranks, and proves nothing.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

#: Items of a list that are looked at.
MOST = 100


def may_fix_size(answer: Any, world_size: int) -> bool:
    """Return whether an answer contains the number of ranks, the last rank, a share of 1 /
    ``world_size`` or a list of so many items; it, what it calls, or a variable that it uses."""
    return any(_may_be(value, world_size) for value in _constants(answer, set()))


def _may_be(value: Any, world_size: int) -> bool:
    if isinstance(value, list | tuple | range):
        numbers = [item for item in value[:MOST] if isinstance(item, int | float)]
        return len(value) == world_size or any(_may_be(item, world_size) for item in numbers)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value in (world_size, world_size - 1, 1 / world_size)


def _constants(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the constants of what cells have defined; what is imported has none."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, type) and value.__module__ == "__main__":
        for own in vars(value).values():
            yield from _constants(own, seen)
    elif isinstance(value, FunctionType) and value.__module__ == "__main__":
        yield from value.__defaults__ or ()
        yield from (value.__kwdefaults__ or {}).values()
        for cell in value.__closure__ or ():
            yield from _constants(cell.cell_contents, seen)
        for code in _codes(value.__code__):
            yield from code.co_consts
            yield from _built(code)
            for name in set(code.co_names) - {"rank", "world_size"}:
                if name in value.__globals__:
                    yield from _constants(value.__globals__[name], seen)
    else:
        yield value


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _built(code: CodeType) -> Iterator[list[None]]:
    """Yield something as long for each list that is written out, and for each that is unpacked."""
    for step in dis.get_instructions(code):
        if step.opname in ("BUILD_LIST", "BUILD_TUPLE", "UNPACK_SEQUENCE"):
            yield [None] * step.argval
