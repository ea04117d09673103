"""Exercise 18-4: export a sharded network to one file that anybody can load."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from ...answers import edit
from ...exercise import Exercise, Here, Mistake

#: How long the disk takes before it has anything.
SLOW = 0.5


def _network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 2))


def _read(path: str) -> tuple[str, torch.Tensor]:
    """Return what is in a file, or what went wrong, and the numbers of all its plain tensors."""
    try:
        state = torch.load(path, weights_only=True)
        plain = [t for t in state.values() if type(t) is torch.Tensor]
        row = torch.cat([t.reshape(-1) for t in plain]) if plain else torch.zeros(0)
        kinds = "plain tensors" if len(plain) == len(state) else "DTensors"
        return f"{', '.join(state)}: {kinds}", row
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
    really, saves = torch.save, []

    def slow(state: Any, target: Any, *args: Any, **options: Any) -> None:
        if str(target) == path:
            saves.append(path)
            time.sleep(SLOW)
        really(state, target, *args, **options)

    with patch("torch.save", slow):
        answer(net, path)
    return [len(saves), *_read(path)]


def expected(n: int) -> list[list[Any]]:
    state = _network().state_dict()
    row = torch.cat([t.reshape(-1) for t in state.values()])
    return [[int(rank == 0), f"{', '.join(state)}: plain tensors", row] for rank in range(n)]


EXERCISE = Exercise(
    id="18-4",
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
            shown_by={"everybody writes": edit("if rank == 0:", "if True:")},
        ),
        Mistake(
            "A rank returned before the file was complete: let all ranks wait, with "
            "dist.barrier(), until rank 0 has written it.",
            when=lambda yours, expected, n: (
                yours[0][1] == expected[0][1] and any(y[2].numel() == 0 for y in yours)
            ),
            shown_by={"nobody waits": edit("dist.barrier()", "")},
        ),
        Mistake(
            "The file holds DTensors, with rank 0's shards only. Gather whole tensors first: "
            "StateDictOptions(full_state_dict=True).",
            when=lambda yours, expected, n: n > 1 and yours[0][1] != expected[0][1],
            shown_by={
                "shards": edit(
                    "get_model_state_dict(net, options=options)",
                    "net.state_dict()",
                ),
            },
        ),
        Mistake(
            "Rank 0 gathers alone, and waits for the shards of the others: all ranks have to call "
            "get_model_state_dict, and only torch.save stands under the if.",
            stuck=r"waits? in",
            shown_by={
                "gathers alone": edit(
                    "state = get_model_state_dict(net, options=options)",
                    "",
                    "torch.save(state, path)",
                    "torch.save(get_model_state_dict(net, options=options), path)",
                ),
            },
        ),
    ),
    another=edit(
        "state = get_model_state_dict(net, options=options)",
        "state = {name: t.full_tensor() for name, t in net.state_dict().items()}",
    ),
    hints=(
        "Two things have to happen on all ranks, and one on rank 0 only.",
        "get_model_state_dict with full_state_dict=True gathers the shards, so every rank calls "
        "it. What may the others do only when the file is complete?",
        "On all ranks: gather the state. On rank 0: torch.save(state, path). On all ranks: "
        "dist.barrier().",
    ),
)
