"""Find which values of a collective became which: from a place before it to a place after it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .moves import COMBINED, Held, Owner
from .values import values

#: A row of a picture and the place of a value in it; both count from 0.
Place = tuple[int, int]
#: Where a value was before, and where it is after or what it is part of.
Link = tuple[Place, Place]
#: What a collective may make of one value of each rank.
OPERATIONS = (sum, max, min, math.prod, lambda numbers: sum(numbers) / len(numbers))


def links(
    before: Sequence[Held], after: Sequence[Held], owners: Sequence[Sequence[Owner]]
) -> list[Link]:
    """Return from where each value after a collective came; a combined one has several sources.

    Parameters
    ----------
    before, after
        What each row holds.
    owners
        For each row, whose each of its values after was, as ``moves.trace`` finds it.
    """
    old = [values(held) for held in before]
    found: list[Link] = []
    for row, held in enumerate(after):
        new = values(held)
        for place, (value, owner) in enumerate(zip(new, owners[row], strict=True)):
            if owner == COMBINED:
                sources = list(_parts(value, old, row, place, len(new)))
            elif isinstance(owner, int):
                sources = [(owner, _place(value, old[owner], place, row))]
            else:
                sources = []
            found += [(source, (row, place)) for source in sources]
    return found


def _place(value: float, row: Sequence[float], place: int, target: int) -> int:
    """Return where a row held a value; of several places the one that fits its target best."""
    places = [i for i, other in enumerate(row) if other == value or value != value != other]
    for likely in (place, target):
        if likely in places:
            return likely
    return places[0]


def _parts(
    value: float, old: Sequence[Sequence[float]], row: int, place: int, count: int
) -> Iterator[Place]:
    """Yield the places whose values make a combined one: the same place of each row that has any,
    or all places if none does."""
    givers = [r for r, held in enumerate(old) if held]
    common = min(len(old[r]) for r in givers)
    # a whole tensor is combined place by place, the piece of a rank from the pieces for this rank
    likely = [place if count == common else row * count + place]
    for i in [i for i in likely if i < common] + list(range(common)):
        numbers = [old[r][i] for r in givers]
        if any(math.isclose(operation(numbers), value) for operation in OPERATIONS):
            yield from ((r, i) for r in givers)
            return
    yield from ((r, i) for r in givers for i in range(len(old[r])))
