"""Find collectives that met one another and were not alike: the result is wrong, and no error.

Ranks match the collectives of a group by their numbers alone, and gloo takes the bytes that come
for those that it waits for. Only what is certain to be wrong is warned of: what a learner can mean
(an if on the rank with a call in each branch, bytes of bool in uint8) is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ..base.rank_names import label
from ..wire.protocol import FROM_ROOT
from ..wire.samples import UNKNOWN, UNSEEN, Calls, CellCalls, Kind
from .messages import conversion, may_be_meant, width

#: The kind of each rank's collective with one number.
Met = Mapping[int, Kind]
#: Collectives that add up, or otherwise combine, what ranks give.
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")


class _Finding(NamedTuple):
    """Something that is wrong with collectives that met."""

    ranks: tuple[int, ...]  #: that it is told on
    places: tuple[str, ...]  #: one finding is told once for each
    kind: str
    text: str


def find(told: Mapping[int, CellCalls]) -> dict[int, list[str]]:
    """Warn of collectives that were not alike, on the ranks whose lines they are.

    ``told``: What ranks of the lab have issued in a cell.
    """
    found: dict[tuple[tuple[str, ...], str], _Finding] = {}
    for key in dict.fromkeys(key for calls in told.values() for key in calls.groups):
        own = {
            rank: calls.groups[key] for rank, calls in sorted(told.items()) if key in calls.groups
        }
        for finding in (*_by_number(own), *_slipped(own, len(key[1]))):
            found.setdefault((finding.places, finding.kind), finding)
    warnings: dict[int, list[str]] = {}
    for finding in found.values():
        for rank in finding.ranks:
            warnings.setdefault(rank, []).append(finding.text)
    return warnings


# -- calls with one number ------------------------------------------------------------------------


def _by_number(own: Mapping[int, Calls]) -> Iterator[_Finding]:
    """Compare the collectives of each number; equal combinations once."""
    by_number: dict[int, dict[int, Kind]] = {}
    for rank, calls in own.items():
        for number, kind in _numbered(calls):
            if kind is not None:
                by_number.setdefault(number, {})[rank] = kind
    seen = set()
    for number, met in sorted(by_number.items()):
        combination = tuple(met.items())
        if combination in seen:
            continue
        seen.add(combination)
        yield from _gaps(number, met)
        for what, compare in COMPARISONS.items():
            if text := compare(met):
                places = tuple(dict.fromkeys(k.where for k in met.values()))
                text = f"{_name(met)} (collective {number}): {text}"
                text = _at(next(filter(None, places), ""), text)
                yield _Finding(tuple(met), places, what, text)


def _numbered(calls: Calls) -> Iterator[tuple[int, Kind | None]]:
    """List the numbers of a rank's collectives with their kinds, None where that is not known."""
    first = calls.last - len(calls.numbers) + 1
    for number, place in enumerate(calls.numbers, first):
        yield number, None if place == UNSEEN else calls.kinds[place]


def _gaps(number: int, met: Met) -> Iterator[_Finding]:
    """Find tensors whose memory holds other elements than theirs, each line for itself."""
    by_call: dict[tuple[str, str], list[int]] = {}
    for rank, kind in met.items():
        if kind.gaps:
            by_call.setdefault((kind.name, kind.where), []).append(rank)
    for (name, where), ranks in by_call.items():
        text = (
            f"{name} (collective {number}) of a tensor that is not contiguous on {label(ranks)}: "
            f"{_backend(met)} takes its memory element after element, whatever its strides are, "
            "so the result is wrong. Pass y = x.contiguous(), and copy a result back: x.copy_(y)."
        )
        yield _Finding(tuple(ranks), (where,), "gaps", _at(where, text))


# Each returns what is wrong with collectives that met, "" if nothing is.


def _types(met: Met) -> str:
    copied = _name(met) not in REDUCTIONS

    def alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        if not one or not other or len(one) != len(other):
            return True  # nothing is known, or they are lists of their own making
        return all(map(partial(may_be_meant, copied=copied), one, other))

    if not _differ(met, lambda kind: kind.types, alike):
        return ""
    how = "copies" if copied else "adds up"
    return (
        f"{_list(met, lambda kind: ' and '.join(kind.types))}: "
        f"{_backend(met)} {how} their bytes as they are, so the result is wrong. "
        f"Convert first: x.{conversion(t for kind in met.values() for t in kind.types)}."
    )


def _orders(met: Met) -> str:
    if not _differ(
        met, lambda kind: kind.order, lambda one, other: UNKNOWN in (one, other) or one == other
    ):
        return ""
    return (
        f"the tensor is {_list(met, lambda kind: _layout(kind.order))}: {_backend(met)} pairs "
        "elements as they lie in memory, so the result is wrong. Pass x.contiguous() on every rank."
    )


def _layout(order: str) -> str:
    if order == UNKNOWN:
        return "not known"
    return f"transposed (dimensions {order} in memory)" if order else "contiguous"


def _operations(met: Met) -> str:
    if not _differ(met, lambda kind: kind.op, lambda a, b: not a or not b or a == b):
        return ""
    return (
        f"{_list(met, lambda kind: kind.op or 'not known')}: each rank combines what comes by its "
        "own operation. Pass the same op on every rank."
    )


def _roots(met: Met) -> str:
    """Compare sources or destinations: where they differ, NCCL ends all the same with small
    tensors."""
    if not _differ(met, lambda kind: kind.root, lambda a, b: a < 0 or b < 0 or a == b):
        return ""
    end = "source" if _name(met) in FROM_ROOT else "destination"
    return (
        f"the {end} is {_list(met, lambda kind: f'rank {kind.root}')}: every rank has to name the "
        "same one, so the result is wrong, and so may be what follows: lab.reset() makes the group "
        "anew."
    )


def _sizes(met: Met) -> str:
    if not _differ(met, _bytes, lambda a, b: a < 0 or b < 0 or a == b):
        return ""
    counts = _list(
        met,
        lambda kind: (
            f"{kind.elements:,} element{'s' * (kind.elements != 1)} of {' and '.join(kind.types)}"
        ),
    )
    return (
        f"{counts}: {_backend(met)} takes fewer for all, and the rest keeps its old values. Every "
        "rank has to bring a tensor of the same size."
    )


def _bytes(kind: Kind) -> int:
    return kind.elements * width(kind.types[0]) if kind.types else -1


COMPARISONS: dict[str, Callable[[Met], str]] = {
    "types": _types,
    "orders": _orders,
    "operations": _operations,
    "roots": _roots,
    "sizes": _sizes,
}


def _differ(met: Met, of: Callable[[Kind], object], alike: Callable[..., bool]) -> bool:
    """Return whether calls of one collective differ in something."""
    kinds = list(met.values())
    return any(
        one.name == other.name and not alike(of(one), of(other))
        for i, one in enumerate(kinds)
        for other in kinds[:i]
    )


def _list(met: Met, of: Callable[[Kind], str]) -> str:
    """List what ranks have given: "int32 on rank 0, float32 on ranks 1–3"; with the lines where
    these are not the same."""
    lines = {kind.where for kind in met.values()}
    by_value: dict[tuple[str, str], list[int]] = {}
    for rank, kind in met.items():
        by_value.setdefault((of(kind), kind.where if len(lines) > 1 else ""), []).append(rank)
    return ", ".join(
        f"{value} on {label(ranks)}" + (f" ({where})" if where else "")
        for (value, where), ranks in by_value.items()
    )


def _name(met: Met) -> str:
    return next(iter(met.values())).name


def _backend(met: Met) -> str:
    return next(iter(met.values())).backend.replace("nccl", "NCCL")


def _at(where: str, text: str) -> str:
    """Return it as Python's own warnings are shown."""
    return f"UserWarning{f' ({where})' if where else ''}: {text}"


# -- calls that have slipped ----------------------------------------------------------------------


def _slipped(own: Mapping[int, Calls], size: int) -> Iterator[_Finding]:
    """Find lines that all ranks come by equally often, whose calls met those of other lines.

    So it is where a loop is shorter on some rank: the call after it meets the last ones of the
    loop. To be certain, the lines that all ranks come by equally often, or those that they come by
    once, must have come in the same order on all.
    """
    if size < 2 or len(own) < size or not all(calls.whole for calls in own.values()):
        return
    made = {rank: _lines(calls) for rank, calls in own.items()}
    if len({tuple(number for number, _ in lines) for lines in made.values()}) > 1:
        return
    counts = [Counter(place for _, place in lines) for lines in made.values()]
    direct = {kind.where for calls in own.values() for kind in calls.kinds if kind.direct}
    even = {place for place in direct if len({count[place] for count in counts}) == 1}
    for steps in (even, {place for place in even if counts[0][place] == 1}):
        if len({tuple(p for _, p in lines if p in steps) for lines in made.values()}) == 1:
            yield from _strays(made, steps)
            return


def _lines(calls: Calls) -> list[tuple[int, str]]:
    """List number and line of each collective that has a result; "" for those of C++."""
    return [
        (number, "" if kind is None else kind.where)
        for number, kind in _numbered(calls)
        if kind is None or kind.name != "barrier"
    ]


def _strays(made: Mapping[int, list[tuple[int, str]]], steps: set[str]) -> Iterator[_Finding]:
    """Find calls of some lines that met those of others, which ranks had made unequally often."""
    before: dict[int, Counter[str]] = {rank: Counter() for rank in made}
    for met in zip(*made.values(), strict=True):
        at = dict(zip(made, (place for _, place in met), strict=True))
        for place in dict.fromkeys(p for p in at.values() if p in steps):
            here = [rank for rank, p in at.items() if p == place]
            for other in dict.fromkeys(p for p in at.values() if p not in steps):
                there = [rank for rank, p in at.items() if p == other]
                times = {rank: before[rank][other] + (at[rank] == other) for rank in made}
                if all(times.values()) and len(set(times.values())) > 1:
                    yield _stray(met[0][0], (place, here), (other, there), times)
        for rank, place in at.items():
            before[rank][place] += 1


def _stray(
    number: int,
    own: tuple[str, Sequence[int]],
    other: tuple[str, Sequence[int]],
    times: Mapping[int, int],
) -> _Finding:
    place, here = own
    by_count: dict[int, list[int]] = {}
    for rank, count in times.items():
        by_count.setdefault(count, []).append(rank)
    counts = " and ".join(f"{n} on {label(r)}" for n, r in sorted(by_count.items(), reverse=True))
    line, there = other
    what = f"the one at {line}" if line else "one that torch issued itself, as DDP's backward does,"
    text = (
        f"this call on {label(here)} (collective {number}) met {what} on {label(there)}, so the "
        f"result is wrong. {'That line' if line else 'It'} had made {counts}: every rank has to "
        "make as many calls (uneven data?)."
    )
    return _Finding(tuple(here), (place,), "stray", _at(place, text))
