"""The exercises of notebook 10: who saves, where to go on, which file is good, which pieces."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DistributedSampler

from ..exercise import Exercise, Here, Mistake
from ..mistakes import When, failed, stuck, would_give

# -- 10-1: save and load ------------------------------------------------------------------------

#: How long the first rank's disk takes to begin, in seconds.
SLOW = 0.5


def trial_save(answer: Callable[..., Any], here: Here) -> dict[str, Any]:
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


def expected_save(n: int) -> list[dict[str, Any]]:
    """Rank 0 saves, all have its weights."""
    return [
        {"saved": int(r == 0), "loaded": "mapped", "error": None, "weight": 1.0} for r in range(n)
    ]


def _each(key: str, kind: Callable[[Any], bool], first: int = 0) -> When:
    """Return the predicate of a mistake that shows under one key on every rank from ``first``."""

    def when(yours: Sequence[Any], expected: Any, n: int) -> bool:
        return all(isinstance(y, dict) and kind(y[key]) for y in yours[first:])

    return when


SAVE = Exercise(
    id="10-1",
    title="Save and load",
    answer="save_and_load",
    trial=trial_save,
    expected=expected_save,
    mistakes=(
        Mistake(
            "Only rank 0 calls the barrier, and waits for the others. A barrier is a meeting: it "
            "stands outside of the if.",
            when=stuck,
        ),
        Mistake("Nothing is saved: torch.save on rank 0.", when=_each("saved", lambda k: k == 0)),
        Mistake(
            "Every rank writes the file. One is enough: if rank == 0.",
            when=_each("saved", lambda k: k > 0),
        ),
        Mistake(
            "The others read the file before rank 0 has written it. A barrier between the two, "
            "which all ranks call, makes them wait.",
            when=_each("error", lambda name: name is not None, first=1),
        ),
        Mistake(
            "Only rank 0 has read the file: every rank loads it.",
            when=_each("loaded", lambda how: how == "never", first=1),
        ),
        Mistake(
            "A file remembers the device of rank 0. Say where it goes: torch.load(path, "
            "map_location=device).",
            when=_each("loaded", lambda how: how == "as it was", first=1),
        ),
        Mistake(
            "The file was read, but the weights are the old ones: net.load_state_dict takes them.",
            when=_each("weight", lambda number: number != 1.0, first=1),
        ),
    ),
    hints=(
        "Three steps: one rank writes, all wait, all read.",
        "The barrier comes after the if, where all ranks call it. Reading needs map_location.",
        "if rank == 0: torch.save(net.state_dict(), path). Then dist.barrier(). Then "
        "net.load_state_dict(torch.load(path, map_location=device, weights_only=True)).",
    ),
)

# -- 10-2: resume inside an epoch ---------------------------------------------------------------

ITEMS, EPOCH, DONE, BATCH = 41, 3, 2, 2


def _order(rank: int, n: int, epoch: int = EPOCH) -> list[int]:
    sampler = DistributedSampler(range(ITEMS), num_replicas=n, rank=rank, seed=5)  # type: ignore[arg-type,var-annotated]
    sampler.set_epoch(epoch)
    return list(sampler)


def trial_rest(answer: Callable[..., Any], here: Here) -> Any:
    """Ask for the rest of the fourth epoch."""
    sampler = DistributedSampler(range(ITEMS), num_replicas=here.world_size, rank=here.rank, seed=5)  # type: ignore[arg-type,var-annotated]
    found = answer(sampler, EPOCH, DONE, BATCH)
    return found if found is None else [int(index) for index in found]


def expected_rest(n: int) -> list[list[int]]:
    """Play every rank's epoch in one process, and leave out what was seen."""
    return [_order(r, n)[DONE * BATCH :] for r in range(n)]


def _gives(play: Callable[[int, int], list[int]]) -> When:
    return would_give(lambda n: [play(r, n) for r in range(n)])


REST = Exercise(
    id="10-2",
    title="Resume inside an epoch",
    answer="rest_of_epoch",
    trial=trial_rest,
    expected=expected_rest,
    mistakes=(
        Mistake(
            "That is the order of epoch 0: call sampler.set_epoch(epoch) first.",
            when=_gives(lambda r, n: _order(r, n, 0)[DONE * BATCH :]),
        ),
        Mistake(
            "done counts batches, not images: leave out done * batch.",
            when=_gives(lambda r, n: _order(r, n)[DONE:]),
        ),
        Mistake(
            "You leave out the images of all ranks. A sampler gives this rank's only, and of those "
            "done * batch were seen.",
            when=_gives(lambda r, n: _order(r, n)[DONE * BATCH * n :]),
        ),
        Mistake(
            "That is the whole epoch: its first done * batch images were seen.",
            when=_gives(_order),
        ),
        Mistake(
            "Those are the images that were seen. Return the others.",
            when=_gives(lambda r, n: _order(r, n)[: DONE * BATCH]),
        ),
        Mistake(
            "A DistributedSampler is no list: list(sampler) is one.",
            when=lambda yours, expected, n: failed(yours, "TypeError"),
        ),
    ),
    hints=(
        "The sampler makes the same order again if it knows the epoch.",
        "After sampler.set_epoch(epoch), list(sampler) is this rank's whole epoch.",
        "sampler.set_epoch(epoch); return list(sampler)[done * batch :].",
    ),
)

# -- 10-3: find the newest good one -------------------------------------------------------------

GOOD = {"step": 1, "weight": torch.zeros(3)}


class _Hostile:
    """A pickle that makes a folder when it is read."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (self.folder, 0o777, True)


def trial_newest(answer: Callable[[str], Any], here: Here) -> dict[str, Any]:
    """Ask for the newest in a folder with good, half and hostile files, and in an empty one."""
    with tempfile.TemporaryDirectory() as home:
        folder, empty, marker = (os.path.join(home, name) for name in ("a", "b", "ran"))
        os.mkdir(folder)
        os.mkdir(empty)
        for name in ("step-2.pt", "step-9.pt", "step-10.pt", "step-12.pt.tmp", "notes.txt"):
            torch.save(GOOD, os.path.join(folder, name))
        whole = Path(folder, "step-9.pt").read_bytes()
        Path(folder, "step-11.pt").write_bytes(whole[: len(whole) // 2])
        torch.save({"weight": _Hostile(marker)}, os.path.join(folder, "step-13.pt"))
        for age, name in enumerate(("step-2.pt", "step-10.pt", "step-9.pt", "step-11.pt")):
            os.utime(os.path.join(folder, name), (age, age))  # the last one is the first
        later = time.time() + 60
        os.utime(os.path.join(folder, "step-2.pt"), (later, later))
        found = answer(folder)
        ran = os.path.exists(marker)
        try:
            none = answer(empty)
        except (ValueError, IndexError) as error:
            none = type(error).__name__
    name = os.path.basename(found) if isinstance(found, (str, os.PathLike)) else found
    return {"newest": name, "of an empty folder": none, "ran foreign code": ran}


def expected_newest() -> dict[str, Any]:
    """Return what is known from how the files were made."""
    return {"newest": "step-10.pt", "of an empty folder": None, "ran foreign code": False}


def _newest_is(*names: str) -> When:
    return lambda yours, expected, n: isinstance(yours, dict) and yours["newest"] in names


NEWEST = Exercise(
    id="10-3",
    title="Find the newest good one",
    answer="newest",
    trial=trial_newest,
    expected=expected_newest,
    where="notebook",
    mistakes=(
        Mistake(
            "A file has run code of its own: torch.load(…, weights_only=True).",
            when=lambda yours, expected, n: isinstance(yours, dict) and yours["ran foreign code"],
        ),
        Mistake(
            "step-12.pt.tmp is a draft that nobody finished: take names that end in .pt only.",
            when=_newest_is("step-12.pt.tmp"),
        ),
        Mistake(
            "That file cannot be loaded: it is half a file, or not only tensors. Try torch.load, "
            "and go on with the next one after an error.",
            when=_newest_is("step-11.pt", "step-13.pt"),
        ),
        Mistake(
            "As text, step-9 comes after step-10. Sort by the number: int(match[1]).",
            when=_newest_is("step-9.pt"),
        ),
        Mistake(
            "step-2.pt was copied last, but its step is not the highest. Go by the number in the "
            "name, not by the file's time, and from the highest down.",
            when=_newest_is("step-2.pt"),
        ),
        Mistake(
            "One file that cannot be loaded ends the search: catch its error, and try the next "
            "one.",
            when=lambda yours, expected, n: failed([yours]),
        ),
        Mistake(
            "In a folder without checkpoints the answer is None.",
            when=lambda yours, expected, n: (
                isinstance(yours, dict)
                and yours["newest"] == expected["newest"]
                and yours["of an empty folder"] is not None
            ),
        ),
    ),
    hints=(
        "Collect the names with their numbers, sort, and try one after the other from the top.",
        "Sort with key=lambda match: int(match[1]) and reverse=True; a try around torch.load "
        "tells whether a file is good.",
        "For each match: try: torch.load(os.path.join(folder, match[0]), weights_only=True); "
        "return match[0]; except Exception: continue. At the end return None.",
    ),
)

# -- 10-4: find the pieces ----------------------------------------------------------------------

#: (rows, ranks that saved, ranks that load)
CASES = ((10, 4, 2), (10, 2, 4), (8, 4, 3), (3, 4, 2), (7, 1, 3))
Piece = tuple[int, int, int]


def _block(rows: int, n: int, rank: int) -> tuple[int, int]:
    size = -(-rows // n)
    return min(rank * size, rows), min((rank + 1) * size, rows)


def _find(rows: int, old: int, new: int, rank: int) -> list[Piece]:
    """Look up every single row, and join neighbours."""
    owners = [(f, i) for f in range(old) for i in range(len(range(*_block(rows, old, f))))]
    found: list[Piece] = []
    for file, own in owners[slice(*_block(rows, new, rank))]:
        if found and found[-1][0] == file:
            found[-1] = (file, found[-1][1], own + 1)
        else:
            found.append((file, own, own + 1))
    return found


def _globally(rows: int, old: int, new: int, rank: int) -> list[Piece]:
    starts = {file: _block(rows, old, file)[0] for file in range(old)}
    return [(f, a + starts[f], b + starts[f]) for f, a, b in _find(rows, old, new, rank)]


def _lengths(rows: int, old: int, new: int, rank: int) -> list[Piece]:
    return [(f, a, b - a) for f, a, b in _find(rows, old, new, rank)]


def _whole(rows: int, old: int, new: int, rank: int) -> list[Piece]:
    sizes = {f: len(range(*_block(rows, old, f))) for f in range(old)}
    return [(f, 0, sizes[f]) for f, _, _ in _find(rows, old, new, rank)]


def _table(find: Callable[..., Any]) -> dict[str, Any]:
    return {
        f"{rows} rows, {old} to {new}": [
            [tuple(map(int, piece)) for piece in find(rows, old, new, rank)] for rank in range(new)
        ]
        for rows, old, new in CASES
    }


def trial_pieces(answer: Callable[..., Any], here: Here) -> dict[str, Any]:
    """Ask for every rank of a few cases."""
    return _table(answer)


def expected_pieces() -> dict[str, Any]:
    """Look up row by row."""
    return _table(_find)


def _finds(find: Callable[..., Any]) -> When:
    return lambda yours, expected, n: yours == _table(find)


def _has_empty(yours: Any, expected: Any, n: int) -> bool:
    if not isinstance(yours, dict):
        return False
    full = {
        case: [[p for p in found if p[1] < p[2]] for found in ranks]
        for case, ranks in yours.items()
    }
    return bool(full == expected)


PIECES = Exercise(
    id="10-4",
    title="Find the pieces",
    answer="pieces",
    trial=trial_pieces,
    expected=expected_pieces,
    where="notebook",
    mistakes=(
        Mistake(
            "first and stop count from the beginning of the whole tensor. A file knows its own "
            "rows only: subtract where its block begins.",
            when=_finds(_globally),
        ),
        Mistake(
            "The third number is the end of a piece, not its length.",
            when=_finds(_lengths),
        ),
        Mistake(
            "You read whole files. Cut to the rows that this rank needs.",
            when=_finds(_whole),
        ),
        Mistake(
            "There are empty pieces among them: a file counts only if first < stop.",
            when=_has_empty,
        ),
    ),
    hints=(
        "Compare two blocks: the rows that this rank needs, and the rows of each file.",
        "What two blocks share begins at the larger beginning and ends at the smaller end.",
        "For each file: begin, end = block(rows, old, file); a, b = max(first, begin), min(stop, "
        "end); if a < b: append (file, a - begin, b - begin).",
    ),
)

EXERCISES = (SAVE, REST, NEWEST, PIECES)
