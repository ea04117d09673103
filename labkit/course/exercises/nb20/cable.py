"""Count what a rank puts into the collectives of each group, while an answer runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

#: Methods of a process group that take tensors elsewhere.
MOVES = re.compile(r"_?(all_?reduce|broadcast|reduce|all_?gather|gather|scatter|all_?to_?all|send)")
#: These overwrite their first argument; all others bring their second.
IN_PLACE = re.compile(r"(all_?reduce|broadcast|reduce|send)(_coalesced)?$")


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Record by group name the most elements that this rank has put into one call."""
    most: dict[str, int] = {}
    owner = dist.ProcessGroup
    original = {name: vars(owner)[name] for name in vars(owner) if MOVES.match(name)}
    for name in original:
        setattr(owner, name, _counting(name, getattr(owner, name), most))
    try:
        yield most
    finally:
        for name, method in original.items():
            setattr(owner, name, method)


def _counting(name: str, method: Callable[..., Any], most: dict[str, int]) -> Callable[..., Any]:
    place = 0 if IN_PLACE.match(name) else 1

    def call(self: Any, *args: Any, **named: Any) -> Any:
        elements = count(args[place]) if len(args) > place else 0
        most[self.group_name] = max(most.get(self.group_name, 0), elements)
        return method(self, *args, **named)

    return call


def count(value: Any) -> int:
    """Add up the elements of a tensor, or of all tensors in lists of them."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, list | tuple):
        return sum(map(count, value))
    return 0
