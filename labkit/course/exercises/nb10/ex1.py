"""Exercise 10-1: save on one rank, and load on all when the file is complete."""

from __future__ import annotations

import os
import pickle
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
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

#: How long the first rank's disk takes to begin, in seconds.
SLOW = 0.5


def trial(answer: Callable[..., Any], here: Here) -> dict[str, Any]:
    """Save and load on a slow disk; say who wrote, how it was read, and whose weights came."""
    rank = here.rank
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    path = os.path.join(str(box[0]), "net.pt")
    net = nn.Linear(3, 2).to(here.device)
    nn.init.constant_(net.weight, rank + 1.0)
    nn.init.zeros_(net.bias)
    seen: dict[str, Any] = {"saved": 0, "loaded": "never" if rank else "mapped", "error": None}
    stock_save, stock_load = torch.save, torch.load

    def save(*args: Any, **options: Any) -> None:
        seen["saved"] += 1
        time.sleep(0 if rank else SLOW)
        stock_save(*args, **options)

    def load(file: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        seen["loaded"] = "as it was" if map_location is None else "mapped"
        return stock_load(file, map_location, *args, **options)

    try:
        with patch.object(torch, "save", save), patch.object(torch, "load", load):
            answer(net, path)
    except (OSError, EOFError, pickle.UnpicklingError) as error:
        seen["error"] = type(error).__name__
    seen["weight"] = net.weight.flatten()[0].item()
    dist.barrier()
    if rank == 0:
        shutil.rmtree(str(box[0]), ignore_errors=True)
    return seen


def expected(n: int) -> list[dict[str, Any]]:
    """Rank 0 saves, all have its weights."""
    return [
        {"saved": int(r == 0), "loaded": "mapped", "error": None, "weight": 1.0} for r in range(n)
    ]


def _each(key: str, kind: Callable[[Any], bool], first: int = 0) -> When:
    """Return the predicate of a mistake that shows under one key on every rank from ``first``."""

    def when(yours: Sequence[Any], expected: Any, n: int) -> bool:
        return all(isinstance(y, dict) and kind(y[key]) for y in yours[first:])

    return when


EXERCISE = Exercise(
    id="10-1",
    title="Save and load",
    answer="save_and_load",
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
            "barrier between saving and loading.",
            when=_each("error", lambda name: name is not None, first=1),
            shown_by={
                "nobody waits": edit("dist.barrier()", ""),
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
            when=_each("weight", lambda number: number != 1.0, first=1),
            shown_by={
                "read and thrown away": body("""
                    if rank == 0:
                        torch.save(net.state_dict(), path)
                    dist.barrier()
                    torch.load(path, map_location=device, weights_only=True)
                """),
            },
        ),
    ),
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
