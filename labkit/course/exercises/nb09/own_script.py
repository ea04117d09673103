"""Start a script that trains on several processes, and find where it differs from one process.

What is found is what the processes have told of themselves (:mod:`labkit.wire.protocol`) and what
is in the checkpoint; one process of ``single.py`` says what there should be.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...script_start import Trained, start
from .alone import BATCH, EPOCHS, RATE, ROWS, STEPS, alone, without_state

#: What rounding may change in a weight, as ranks add up in a different order: 1e-6 as a rule, and
#: 2e-4 in five of 24 runs that differed in the order alone. Wrong scripts change some weight by
#: 0.06 or more.
TOLERANCE = 5e-3
NAMES = tuple(f"{layer}.{name}" for layer in (0, 3, 8) for name in ("weight", "bias"))

TWO, ONE = "2 processes, from the beginning", "1 process, from a checkpoint of single.py"
FOUR = "4 processes, from the beginning"
KILLED, AGAIN = "2 processes, rank 1 killed in epoch 2", "2 processes, started again after that"


class Said(str):
    """What was found, in words: it is shown without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


OURS = Said("single.py's")
SAME_ORDER = Said("the same order in each epoch")
OTHERS = Said("others")
EQUAL = Said("equal")
NO_STATE = Said("as without the optimizer's state")
NOTHING = Said("no checkpoint")


def trial(script: Path, seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Start the script on 2, 1 and 4 processes, kill one, and start it again.

    Yields the name of each part and what was found.
    """
    alone()
    with tempfile.TemporaryDirectory(prefix="labkit-") as name:
        folder = Path(name)
        place = folder / "two.pt"
        ranks = _start(script, 2, place, seconds)
        yield TWO, found(ranks, place)
        place = folder / "one.pt"
        shutil.copy(alone().first, place)
        ranks = _start(script, 1, place, seconds)
        yield ONE, found(ranks, place, done=1)
        place = folder / "four.pt"
        ranks = _start(script, 4, place, seconds)
        yield FOUR, found(ranks, place)
        place = folder / "killed.pt"
        ranks = _start(script, 2, place, seconds, kill=(1, STEPS + 1))
        killed = 2 if ranks[1].held else "not at all"
        yield KILLED, {"rank 1 killed in epoch": killed, **_of_file(_state(place))}
        ranks = _start(script, 2, place, seconds)
        yield AGAIN, found(ranks, place, done=1)


def expected() -> dict[str, dict[str, Any]]:
    """Return what is to be found in each part."""
    file = {"epoch in the checkpoint": EPOCHS, "names in it": Said(", ".join(NAMES))}
    return {
        TWO: _expected(2),
        ONE: _expected(1, done=1),
        FOUR: _expected(4),
        KILLED: {"rank 1 killed in epoch": 2, **file, "epoch in the checkpoint": 1},
        AGAIN: _expected(2, done=1),
    }


def _expected(size: int, done: int = 0) -> dict[str, Any]:
    return {
        "rows per step, by rank": [BATCH // size] * size,
        "rows in all, by rank": [(EPOCHS - done) * ROWS // size] * size,
        "different rows per step": BATCH,
        "steps": (EPOCHS - done) * STEPS,
        "rows of the steps": OURS,
        "weights of the ranks": EQUAL,
        "saves, by rank": [EPOCHS - done, *[0] * (size - 1)],
        "saved under another name first": True,
        "epoch in the checkpoint": EPOCHS,
        "names in it": Said(", ".join(NAMES)),
        "learning rate in it": RATE,
        "weights in it": OURS,
    }


def found(ranks: Sequence[Trained], place: Path, done: int = 0) -> dict[str, Any]:
    """Describe a run in the terms of :func:`expected`.

    Parameters
    ----------
    ranks
        What its processes have told.
    place
        Where its checkpoint is.
    done
        The epochs that the checkpoint had before the run.
    """
    saves = [[path for path in r.saved if _is_near(path, place)] for r in ranks]
    direct = any(os.path.realpath(path) == os.path.realpath(place) for s in saves for path in s)
    together = [
        [row for part in parts for row in part]
        for parts in zip(*(rank.steps for rank in ranks), strict=False)
    ]
    state = _state(place)
    return {
        "rows per step, by rank": [len(r.steps[0]) if r.steps else 0 for r in ranks],
        "rows in all, by rank": [sum(map(len, r.steps)) for r in ranks],
        "different rows per step": len(set(together[0])) if together else 0,
        "steps": max(len(r.steps) for r in ranks),
        "rows of the steps": _order(together, alone().steps[done * STEPS :]),
        "weights of the ranks": _spread([r.weights for r in ranks]),
        "saves, by rank": [len(s) for s in saves],
        "saved under another name first": not direct,
        **_of_file(state),
        "learning rate in it": _rate(state),
        "weights in it": _weights(state, done),
    }


def _start(
    script: Path, size: int, place: Path, seconds: float, kill: tuple[int, int] | None = None
) -> list[Trained]:
    words = [f"--epochs={EPOCHS}", f"--save={place}"]
    folder = Path(tempfile.mkdtemp(dir=place.parent))
    return start(script, size, words, folder, seconds, kill)


def _is_near(path: str, place: Path) -> bool:
    """Return whether a save was one of the checkpoint: to its folder, or to no file by name."""
    return not path or os.path.realpath(os.path.dirname(path)) == os.path.realpath(place.parent)


def _order(steps: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> Said:
    """Return which rows the steps were made with, of all ranks together."""
    sets = [frozenset(step) for step in steps]
    if sets == [frozenset(step) for step in wanted]:
        return OURS
    if len(sets) == len(wanted) > STEPS and sets[:STEPS] == sets[STEPS:]:
        return SAME_ORDER
    return OTHERS


def _spread(weights: Sequence[Any]) -> Said:
    """Return whether all ranks have the same weights at the end."""
    if any(w is None for w in weights):
        return Said("not known")
    apart = max((float((w - weights[0]).abs().max()) for w in weights), default=0.0)
    return EQUAL if apart <= TOLERANCE else Said(f"up to {apart:.1g} apart")


def _of_file(state: Any) -> dict[str, Any]:
    if not isinstance(state, Mapping):
        return {"epoch in the checkpoint": state, "names in it": state}
    model = state.get("model")
    names = ", ".join(map(str, model)) if isinstance(model, Mapping) else 'no "model"'
    epoch = state.get("epoch", Said('no "epoch"'))
    return {"epoch in the checkpoint": epoch, "names in it": Said(names)}


def _state(place: Path) -> Any:
    """Return what is in a checkpoint, or say that there is none."""
    import torch

    try:
        return torch.load(place, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return NOTHING
    except Exception as error:  # whatever the learner has written there
        return Said(f"cannot be read: {type(error).__name__}")


def _rate(state: Any) -> Any:
    try:
        return state["optimizer"]["param_groups"][0]["lr"]
    except (TypeError, KeyError, IndexError):
        return Said('no "optimizer"')


def _weights(state: Any, done: int) -> Said:
    """Compare the weights of a checkpoint with those of one process."""
    try:
        mine = state["model"]
        apart = _distance(mine, alone().weights)
    except Exception:  # other names or shapes, or no tensors at all
        return Said("not comparable")
    if apart <= TOLERANCE:
        return OURS
    if done and _distance(mine, without_state()) <= TOLERANCE:
        return NO_STATE
    return Said(f"up to {apart:.1g} from {OURS}")


def _distance(mine: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """Return by how much two models differ in a weight at most; a prefix of DDP does not count."""
    plain = {name.removeprefix("module."): value for name, value in mine.items()}
    return max(float((plain[name] - value).abs().max()) for name, value in wanted.items())
