"""Exercise 11-1: save on one rank, and load on all when the file is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...compare import same
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When
from ...trial_tools import sleepless, slow_save
from .saves import another_saves

#: How long the first rank's disk takes in the middle of a file, in seconds.
SLOW = 0.5
CASES = ("a model", "a model in DDP")
OTHERS = "not as rank 0 has it"
NAMES = "names in the file"


def trial(answer: Callable[..., Any], here: Here) -> list[dict[str, Any]]:
    """Save and load a model, and one in DDP, on a slow disk."""
    found = []
    for case in range(len(CASES)):
        model = _net(case).to(here.device)
        net = DistributedDataParallel(model) if case else model  # it gives all rank 0's weights
        _fill(model, here.rank)
        first = _net(case)
        _fill(first, 0)
        found.append(_one(answer, net, first.state_dict(), model, here))
    return found


def _one(
    answer: Callable[..., Any], net: nn.Module, first: dict[str, Any], model: nn.Module, here: Here
) -> dict[str, Any]:
    """Return who wrote which names, how the file was read, and whose weights came."""
    rank = here.rank
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    path = os.path.join(str(box[0]), "net.pt")
    seen: dict[str, Any] = {"saved": 0, "loaded": "never" if rank else "mapped"}
    original_load, write = torch.load, slow_save(torch.save, 0 if rank else SLOW)

    def save(*args: Any, **options: Any) -> None:
        seen["saved"] += 1
        write(*args, **options)

    def load(file: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        seen["loaded"] = "as it was" if map_location is None else "mapped"
        return original_load(file, map_location, *args, **options)

    try:
        with sleepless(), patch.multiple(torch, save=save, load=load):
            answer(net, path)
        state = model.state_dict()
        seen[OTHERS] = [name for name in first if not same(state[name], first[name])]
        dist.barrier()
        if rank == 0:
            seen[NAMES] = _names(path, original_load)
    finally:
        if rank == 0:
            shutil.rmtree(str(box[0]), ignore_errors=True)
    return seen


def _names(path: str, load: Callable[..., Any]) -> str:
    """Return which names a file has."""
    if not os.path.exists(path):
        return "no file"
    names = list(load(path, "cpu", weights_only=True))
    return "with module." if any(name.startswith("module.") for name in names) else "the model's"


def _net(case: int) -> nn.Module:
    """Return a small net with buffers; its shapes differ from case to case."""
    return nn.Sequential(nn.Linear(3 + case, 2), nn.BatchNorm1d(2))


def _fill(net: nn.Module, rank: int) -> None:
    """Give a net numbers that differ from those of other ranks, those of buffers too."""
    with torch.no_grad():
        for value in net.state_dict().values():
            value.copy_(torch.arange(value.numel()).view(value.shape) + 10 * (rank + 1))


def expected(n: int) -> list[list[dict[str, Any]]]:
    """Rank 0 saves, all have its weights."""
    first = {"saved": 1, "loaded": "mapped", OTHERS: [], NAMES: "the model's"}
    others = {"saved": 0, "loaded": "mapped", OTHERS: []}
    return [[first] * len(CASES), *[[others] * len(CASES)] * (n - 1)]


def _each(key: str, kind: Callable[[Any], bool], first: int = 0) -> When:
    """Return the predicate of a mistake that shows under one key of a case on every rank from
    ``first``."""
    return lambda yours, expected, n: any(
        all(kind(y[case].get(key)) for y in yours[first:]) for case in range(len(CASES))
    )


EXERCISE = Exercise(
    id="11-1",
    title="Save and load",
    answer="save_and_load",
    setup="""
        import time

        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP
    """,
    trial=trial,
    expected=expected,
    entries=CASES,
    mistakes=(
        Mistake(
            "A rank reads the file when it is not there, or not all of it. Rank 0 has to write "
            "it, and all ranks call a barrier between saving and loading, outside the if: a disk "
            "can be slower than any time.sleep.",
            raises=r"^FileNotFoundError: .*/net\.pt'|^EOFError|PytorchStreamReader",
        ),
        Mistake(
            "A plain model has no .module. Use net.module only if net is wrapped in DDP.",
            raises=r"has no attribute 'module'",
        ),
        Mistake(
            "The file has the model's own names, and DDP's load_state_dict expects module. in "
            "front of each. Load into net.module.",
            raises=r"in loading state_dict for DistributedDataParallel",
        ),
        Mistake(
            "Nothing is saved: rank 0 has to call torch.save.",
            when=_each("saved", lambda k: k == 0),
        ),
        Mistake(
            "Every rank writes the file. One is enough: if rank == 0.",
            when=_each("saved", lambda k: k > 0),
        ),
        Mistake(
            "The other ranks have not read the file: every rank has to load it.",
            when=_each("loaded", lambda how: how == "never", first=1),
        ),
        Mistake(
            "The file remembers rank 0's device. Say where the tensors go: torch.load(path, "
            'map_location="cpu").',
            when=_each("loaded", lambda how: how == "as it was", first=1),
        ),
        Mistake(
            "The names of a wrapped model's file begin with module., so a plain model cannot load "
            "it. Save net.module.state_dict() if net is wrapped in DDP.",
            when=lambda yours, expected, n: yours[0][1].get(NAMES) == "with module.",
        ),
        Mistake(
            "Rank 0 does not save, and its weights are the ones that all ranks are to have: save "
            "where rank == 0.",
            when=another_saves,
        ),
        Mistake(
            "The file was read, but the weights have not changed: pass what was read to "
            "load_state_dict.",
            when=lambda yours, expected, n: all(
                y[case][OTHERS] == list(_net(case).state_dict())
                for y in yours[1:]
                for case in range(len(CASES))
            ),
        ),
        Mistake(
            "Only a part of the state has come from the file. Save the whole state_dict(), buffers "
            "too, and pass it to load_state_dict; strict=False skips names without a word.",
            when=_each(OTHERS, lambda names: len(names) > 0, first=1),
        ),
        Mistake(
            "You save the net itself. Save its state, net.state_dict(): a pickled net needs its "
            "class to be read, and torch.load refuses it with weights_only=True.",
            raises=r"^UnpicklingError: Weights only load failed",
        ),
    ),
    hints=(
        "Four steps: find the model, which DDP has as net.module; one rank writes; all wait; all "
        "read.",
        "The barrier comes after the if, where all ranks call it. Reading needs map_location.",
        "isinstance(net, DDP) tells whether net is wrapped. Save the state_dict of the model, not "
        "of DDP, and after the barrier pass what torch.load returns to the model's "
        "load_state_dict.",
    ),
)
