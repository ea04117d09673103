"""Exercise 15-4: export a sharded network to one file that anybody can load."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from ...exercise import Exercise, Here, Mistake
from ...mistakes import some_rank
from ...trial_tools import sleepless, slow_save

#: How long the disk takes between the first half of a file and the second.
SLOW = 0.5
#: What stands in the place of the names of a file that holds something else.
NO_DICT = "no dict but a"


def _network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 2))


def _read(path: str) -> tuple[str, torch.Tensor]:
    """Return what is in a file, or what went wrong, and the numbers of all its plain tensors."""
    try:
        with warnings.catch_warnings():  # torch's of a network as a whole
            warnings.simplefilter("ignore")
            state = torch.load(path, weights_only=False)
        if not isinstance(state, dict):
            return f"{NO_DICT} {type(state).__name__}", torch.zeros(0)
        values = {type(t).__name__ for t in state.values()}
        plain = [t for t in state.values() if type(t) is torch.Tensor]
        row = torch.cat([t.reshape(-1) for t in plain]) if plain else torch.zeros(0)
        kinds = "plain tensors" if len(plain) == len(state) else ", ".join(sorted(values))
        return f"{', '.join(map(str, state))}: {kinds}", row
    except Exception as error:
        return type(error).__name__, torch.zeros(0)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Export to a slow disk, and read the file as soon as the answer has returned."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(here.device.type, (here.world_size,))
    net = _network().to(here.device)
    for module in (net[0], net[2], net):
        fully_shard(module, mesh=mesh)
    shared = [tempfile.mkdtemp() if here.rank == 0 else ""]
    dist.broadcast_object_list(shared, src=0)
    path = os.path.join(shared[0], "weights.pt")
    slow, saves = slow_save(torch.save, SLOW), []

    def save(*args: Any, **options: Any) -> None:
        saves.append(args)
        slow(*args, **options)

    with patch("torch.save", save), sleepless():
        answer(net, path)
    return [len(saves), *_read(path)]


def expected(n: int) -> list[list[Any]]:
    state = _network().state_dict()
    row = torch.cat([t.reshape(-1) for t in state.values()])
    return [[int(rank == 0), f"{', '.join(state)}: plain tensors", row] for rank in range(n)]


EXERCISE = Exercise(
    id="15-4",
    title="Export one file",
    answer="export",
    setup="""
        from torch import nn
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    """,
    trial=trial,
    expected=expected,
    entries=("files written by this rank", "what is in the file", "its numbers"),
    seconds=60.0,
    mistakes=(
        Mistake(
            "Every rank writes the file, and they overwrite each other. Only rank 0 calls "
            "torch.save.",
            when=lambda yours, expected, n: n > 1 and all(y[0] == 1 for y in yours),
        ),
        Mistake(
            "No rank has written the file: rank 0 has to call torch.save(state, path).",
            when=lambda yours, expected, n: not any(y[0] for y in yours),
        ),
        Mistake(
            "Another rank than rank 0 writes the file, or one writes it twice.",
            when=some_rank(lambda mine, its: mine[0] != its[0]),
        ),
        Mistake(
            "A rank returned before the file was complete: let all ranks wait, with "
            "dist.barrier(), until rank 0 has written it. That a file exists does not say that it "
            "is complete.",
            when=lambda yours, expected, n: (
                yours[0][1] == expected[0][1] and any(y[2].numel() == 0 for y in yours)
            ),
        ),
        Mistake(
            "The file holds DTensors, with rank 0's shards only. Gather whole tensors first: "
            "StateDictOptions(full_state_dict=True).",
            when=lambda yours, expected, n: yours[0][1].endswith("DTensor"),
        ),
        Mistake(
            "The file has to hold one dict, with a tensor under the name of each parameter, such "
            "as 0.weight: save the state dict itself, in no other dict, list or network.",
            when=lambda yours, expected, n: (
                yours[0][1].startswith(NO_DICT) or yours[0][1].endswith(("dict", "Dict"))
            ),
        ),
        Mistake(
            "Rank 0 gathers alone, and waits for the shards of the others: all ranks have to call "
            "get_model_state_dict, and only torch.save stands under the if.",
            stuck=r"rank 0 waits in (?!barrier)",
        ),
    ),
    hints=(
        "Two things have to happen on all ranks, and one on rank 0 only.",
        "get_model_state_dict with full_state_dict=True gathers the shards, so every rank calls "
        "it. What may the others do only when the file is complete?",
        "On all ranks: gather the state. On rank 0: torch.save(state, path). On all ranks: "
        "dist.barrier().",
    ),
)
