"""Exercise 10-1: save on one rank, and load on all when the file is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from ...answers import body, edit
from ...compare import same
from ...exercise import Exercise, Here, Mistake, Wrong
from ...mistakes import When
from ...sleepless import sleepless

#: How long the first rank's disk takes to begin, in seconds.
SLOW = 0.5
OTHERS = "not as rank 0 has it"


def trial(answer: Callable[..., Any], here: Here) -> dict[str, Any]:
    """Save and load on a slow disk; say who wrote, how it was read, and whose weights came."""
    rank = here.rank
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    path = os.path.join(str(box[0]), "net.pt")
    net, first = _net(rank).to(here.device), _net(0).state_dict()
    seen: dict[str, Any] = {"saved": 0, "loaded": "never" if rank else "mapped", "error": None}
    stock_save, stock_load, sleep = torch.save, torch.load, time.sleep

    def save(*args: Any, **options: Any) -> None:
        seen["saved"] += 1
        sleep(0 if rank else SLOW)
        stock_save(*args, **options)

    def load(file: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        seen["loaded"] = "as it was" if map_location is None else "mapped"
        return stock_load(file, map_location, *args, **options)

    try:
        try:
            with sleepless(), patch.multiple(torch, save=save, load=load):
                answer(net, path)
        except (FileNotFoundError, EOFError) as error:  # not there yet, or still empty
            if getattr(error, "filename", path) != path:
                raise
            seen["error"] = type(error).__name__
        seen[OTHERS] = [
            name for name, value in net.state_dict().items() if not same(value, first[name])
        ]
        dist.barrier()
    finally:
        if rank == 0:
            shutil.rmtree(str(box[0]), ignore_errors=True)
    return seen


def _net(rank: int) -> nn.Module:
    """Return a net, every number of which differs from those of other ranks, those of buffers
    too."""
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        for value in net.state_dict().values():
            value.copy_(torch.arange(value.numel()).view(value.shape) + 10 * (rank + 1))
    return net


def expected(n: int) -> list[dict[str, Any]]:
    """Rank 0 saves, all have its weights."""
    return [{"saved": int(r == 0), "loaded": "mapped", "error": None, OTHERS: []} for r in range(n)]


def _each(key: str, kind: Callable[[Any], bool], first: int = 0) -> When:
    """Return the predicate of a mistake that shows under one key on every rank from ``first``."""

    def when(yours: Sequence[Any], expected: Any, n: int) -> bool:
        return all(isinstance(y, dict) and kind(y[key]) for y in yours[first:])

    return when


EXERCISE = Exercise(
    id="10-1",
    title="Save and load",
    answer="save_and_load",
    setup="import time",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "Rank 0 waits in a barrier that the other ranks do not call. Every rank has to call "
            "it: put it outside the if.",
            stuck=r"\brank 0 waits in barrier",
            shown_by={"rank 0 waits alone": edit("dist.barrier()", "    dist.barrier()")},
        ),
        Mistake(
            "Nothing is saved: rank 0 has to call torch.save.",
            when=_each("saved", lambda k: k == 0),
            shown_by={
                "nobody writes": edit(
                    """
                    if rank == 0:
                        torch.save(net.state_dict(), path)
                    """,
                    "",
                ),
            },
        ),
        Mistake(
            "Every rank writes the file. One is enough: if rank == 0.",
            when=_each("saved", lambda k: k > 0),
            shown_by={
                "everybody writes": edit(
                    """
                    if rank == 0:
                        torch.save(net.state_dict(), path)
                    """,
                    "torch.save(net.state_dict(), path)",
                ),
            },
        ),
        Mistake(
            "The other ranks read the file before rank 0 has written it. Let all ranks call a "
            "barrier between saving and loading: a disk can be slower than any time.sleep.",
            when=_each("error", lambda name: name is not None, first=1),
            shown_by={
                "nobody waits": edit("dist.barrier()", ""),
                "waits for some time": edit("dist.barrier()", "time.sleep(3)"),
                "waits too early": edit(
                    "if rank == 0:",
                    """
                    dist.barrier()
                    if rank == 0:
                    """,
                    "dist.barrier()",
                    "",
                ),
            },
        ),
        Mistake(
            "The other ranks have not read the file: every rank has to load it.",
            when=_each("loaded", lambda how: how == "never", first=1),
            shown_by={
                "rank 0 reads alone": body("""
                    if rank == 0:
                        torch.save(net.state_dict(), path)
                        net.load_state_dict(
                            torch.load(path, map_location=device, weights_only=True)
                        )
                    dist.barrier()
                    for parameter in net.parameters():
                        dist.broadcast(parameter.data, 0)
                """),
            },
        ),
        Mistake(
            "The file remembers rank 0's device. Say where the tensors go: torch.load(path, "
            "map_location=device).",
            when=_each("loaded", lambda how: how == "as it was", first=1),
            shown_by={"no map_location": edit("map_location=device, weights_only", "weights_only")},
        ),
        Mistake(
            "The file was read, but the weights have not changed: pass what was read to "
            "net.load_state_dict.",
            when=_each(OTHERS, lambda names: names == list(_net(0).state_dict()), first=1),
            shown_by={
                "read and thrown away": body("""
                    if rank == 0:
                        torch.save(net.state_dict(), path)
                    dist.barrier()
                    torch.load(path, map_location=device, weights_only=True)
                """),
            },
        ),
        Mistake(
            "Only a part of the state has come from the file. Save the whole net.state_dict(), "
            "buffers too, and pass it to net.load_state_dict.",
            when=_each(OTHERS, lambda names: 0 < len(names) < len(_net(0).state_dict()), first=1),
            shown_by={
                "the weights alone": edit(
                    "net.load_state_dict(torch.load",
                    "state = (torch.load",
                    "weights_only=True))",
                    """
                    weights_only=True))
                    state = {name: state[name] for name in state if "weight" in name}
                    net.load_state_dict(state, strict=False)
                    """,
                ),
                "the parameters alone": edit(
                    "net.state_dict()",
                    "dict(net.named_parameters())",
                    "weights_only=True)",
                    "weights_only=True), strict=False",
                ),
            },
        ),
        Mistake(
            "You save the net itself. Save its state, net.state_dict(): a pickled net needs its "
            "class to be read, and torch.load refuses it with weights_only=True.",
            raises=r"^UnpicklingError: Weights only load failed",
            shown_by={"saves the net": edit("torch.save(net.state_dict(),", "torch.save(net,")},
        ),
    ),
    also_wrong={
        "another file": Wrong(
            edit("torch.load(path,", 'torch.load(path + "x",'), says="FileNotFoundError"
        ),
    },
    another=body("""
        if rank != 0:
            dist.barrier()
            with open(path, "rb") as file:
                net.load_state_dict(torch.load(file, "cpu"))
        else:
            with open(path, "wb") as file:
                torch.save(dict(net.state_dict()), file)
            dist.barrier()
    """),
    hints=(
        "Three steps: one rank writes, all wait, all read.",
        "The barrier comes after the if, where all ranks call it. Reading needs map_location.",
        "Rank 0 saves net.state_dict(). After the barrier every rank calls torch.load, with "
        "map_location and weights_only=True; net.load_state_dict takes the result.",
    ),
)
