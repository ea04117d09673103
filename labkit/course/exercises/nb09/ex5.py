"""Exercise 09-5: report the mean loss: one rank prints and saves, and the others wait for the
file."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, rank_simulated
from ...trial_tools import sleepless, slow_save
from .facts import Facts, fact, has

EPOCH = 3
#: What stands in the place of the names of a file that holds something else.
NO_STATE = "no state_dict but a"
#: What writing the file takes, so that a rank that does not wait comes too early.
SAVING = 0.3


def trial(answer: Callable[..., Any], here: Here) -> Facts:
    """Report one epoch; return what was printed and written here, and what is there after."""
    rank = here.rank
    folders: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folders, src=0)
    path = Path(folders[0]) / "model.pt"
    net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1).to(here.device))
    write, saved, printed = slow_save(torch.save, SAVING), [0], io.StringIO()

    def save(*args: Any, **named: Any) -> None:
        saved[0] += 1
        write(*args, **named)

    with patch.object(torch, "save", save), sleepless(), contextlib.redirect_stdout(printed):
        mean = answer(EPOCH, rank + 1.0, net, path)
    there = _holds(path) is not None
    dist.barrier()
    names = _holds(path) or ""
    dist.barrier()
    if rank == 0:
        shutil.rmtree(path.parent)
    return {
        "returned": mean,
        "printed": printed.getvalue().strip(),
        "files written": saved[0],
        "file is there": there,
        "names in it": names,
    }


def _holds(path: Path) -> str | None:
    """Return the names in a file, or what else it holds; None if it is not there as a whole."""
    try:
        with warnings.catch_warnings():  # torch's of a network as a whole
            warnings.simplefilter("ignore")
            state = torch.load(path, weights_only=False)
    except Exception:
        return None
    if isinstance(state, dict) and all(isinstance(t, torch.Tensor) for t in state.values()):
        return ", ".join(sorted(state))
    return f"{NO_STATE} {type(state).__name__}"


def expected(world_size: int) -> list[Facts]:
    """Print and write on rank 0; return the mean everywhere."""
    mean = sum(range(1, world_size + 1)) / world_size
    return [
        {
            "returned": mean,
            "printed": "" if rank else f"epoch {EPOCH}: loss {mean:.3f}",
            "files written": 0 if rank else 1,
            "file is there": True,
            "names in it": "bias, weight",
        }
        for rank in range(world_size)
    ]


def _elsewhere(name: str) -> Predicate:
    """Return the predicate of a mistake: ranks other than 0 have this fact too."""
    return Predicate(lambda yours, expected, n: any(y[name] for y in yours[1:]))


EXERCISE = Exercise(
    id="09-5",
    title="Speak and save once",
    answer="report",
    setup="from torch.nn.parallel import DistributedDataParallel as DDP",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "Rank 0 waits in a collective that the other ranks do not call. Only printing and "
            "saving belong under the if; every rank has to call all_reduce and barrier.",
            stuck=r"\brank 0 waits in (all_reduce|barrier)",
        ),
        Mistake(
            "No rank has written the file: rank 0 has to call torch.save.",
            when=lambda yours, expected, n: not any(y["files written"] for y in yours),
        ),
        Mistake(
            "Not rank 0, but another rank prints or saves: compare rank with 0.",
            when=(_elsewhere("printed") & fact("printed", lambda printed, n: not printed))
            | (_elsewhere("files written") & fact("files written", lambda count, n: not count)),
        ),
        Mistake(
            "Not only rank 0 prints: put print under if rank == 0.",
            when=_elsewhere("printed"),
        ),
        Mistake(
            "Not only rank 0 writes the file: put torch.save under if rank == 0.",
            when=_elsewhere("files written"),
        ),
        Mistake(
            "Each rank returns the loss of its own images: add the losses up over the ranks, on "
            "every rank, and divide by world_size.",
            when=rank_simulated(lambda rank, n: rank + 1.0, lambda facts: facts["returned"]),
        ),
        Mistake(
            "That is the sum over the ranks: divide it by world_size.",
            when=fact("returned", lambda mean, n: mean == n * (n + 1) / 2),
        ),
        Mistake(
            "The file holds something else than the state_dict of the model in net, which is a "
            "dict of tensors: torch.save(net.module.state_dict(), path).",
            when=fact("names in it", lambda names, n: names.startswith(NO_STATE)),
        ),
        Mistake(
            "The names in the file begin with module., DDP's own prefix: save the state_dict of "
            "net.module, so that a model without DDP can load it.",
            when=fact("names in it", lambda names, n: "module." in names),
        ),
        Mistake(
            "Some ranks returned before the file was complete: let every rank call a barrier after "
            "the save. That a file exists does not say that all of it is there.",
            when=has(file_is_there=False),
        ),
    ),
    hints=(
        "First what needs all ranks, then what rank 0 does alone, then let all ranks wait for "
        "that.",
        "A tensor of the loss, all_reduce, divided by world_size; under if rank == 0: print and "
        "torch.save; after it, on every rank, dist.barrier().",
        'print(f"epoch {epoch}: loss {mean:.3f}") and torch.save(net.module.state_dict(), path).',
    ),
)
