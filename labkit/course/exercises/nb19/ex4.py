"""Exercise 19-4: make a script survive that torchrun starts on two nodes, and starts again.

What the learner writes is a file. The check starts it under torchrun as two nodes, kills the
process of one, and compares what came out with one process of ``single.py``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...exercise import Exercise, Mistake
from ...mistakes import When
from ...script_start import Trained, start_nodes
from ..nb09 import own_script
from ..nb09.alone import EPOCHS, STEPS, alone
from ..nb09.own_script_mistakes import AGAIN, EPOCH, NO_STATE, NOTHING, SAVES, Facts, shows

PART = "2 nodes with a process each, rank 1 killed in epoch 2"
LIVES = "steps of rank 1, in its two lives"
KILLED = 1


def trial(script: Path, seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Start the script on two nodes, and kill rank 1 in epoch 2; yield what was found."""
    alone()
    with tempfile.TemporaryDirectory(prefix="labkit-") as name:
        place, told = Path(name, "last.pt"), Path(name, "told")
        told.mkdir()
        words = [f"--epochs={EPOCHS}", f"--save={place}"]
        ranks = start_nodes(script, words, told, seconds, kill=(KILLED, STEPS + 1))
        yield PART, found(ranks, place)


def found(ranks: list[Trained], place: Path) -> dict[str, Any]:
    """Describe the run: what the second lives did, and what all saved."""
    steps = len(ranks[KILLED].steps)
    first = min(STEPS, steps)
    last = [replace(rank, steps=rank.steps[-STEPS:]) for rank in ranks]
    return {LIVES: [first, steps - first], **own_script.found(last, place, done=1)}


def expected() -> dict[str, dict[str, Any]]:
    """Return what is to be found: no epoch twice, and the weights of one process."""
    facts = own_script.expected()[AGAIN]
    return {PART: {LIVES: [STEPS, STEPS], **facts, SAVES: [EPOCHS, 0]}}


def _second_life(differs: Callable[[int, int, Facts, Facts], bool]) -> When:
    """Return the predicate of a first life with the right steps, and a second with ``differs``."""
    return shows(
        lambda y, e: y[LIVES][0] == e[LIVES][0] and differs(y[LIVES][1], e[LIVES][1], y, e)
    )


EXERCISE = Exercise(
    id="19-4",
    title="Survive a restart",
    answer="my_elastic.py",
    where="file",
    start="scripts/fragile.py",
    trial=trial,
    expected=expected,
    seconds=300.0,
    mistakes=(
        Mistake(
            "There is no checkpoint where --save=PATH says.",
            when=shows(lambda y, e: y[EPOCH] == NOTHING),
        ),
        Mistake(
            "The processes that torchrun has started again begin with epoch 1 once more. Before "
            "the first step, load the checkpoint if there is one: the model, the optimizer and "
            "the epoch, after which they go on.",
            when=_second_life(lambda mine, its, y, e: mine > its and y[EPOCH] == e[EPOCH]),
        ),
        Mistake(
            "The processes that torchrun has started again leave an epoch out. The checkpoint says "
            "how many epochs are done: go on with the next one.",
            when=_second_life(lambda mine, its, y, e: mine < its),
        ),
        Mistake(
            "The checkpoint has a smaller epoch than the number of epochs done, so what starts "
            "again repeats the last one. After the first epoch it is 1.",
            when=shows(lambda y, e: y[EPOCH] == e[EPOCH] - 1),
        ),
        Mistake(
            "One process per node writes the checkpoint, all to the same file: the local rank is "
            "0 on every node. dist.get_rank() is 0 on one process of the whole job.",
            when=shows(lambda y, e: all(y[SAVES])),
            raises=r"(?s)^FileNotFoundError: .*'[^']*' -> '",
        ),
        Mistake(
            "The checkpoint is written over the old one: a process that is killed meanwhile "
            "leaves half a file, and the good one is lost. Save under another name and call "
            "os.replace(new, path).",
            when=shows(lambda y, e: not y["saved under another name first"]),
        ),
        Mistake(
            "It goes on with the model's weights, but without the optimizer's state: the momentum "
            "of the steps before is lost. Load both.",
            when=shows(lambda y, e: y["weights in it"] == NO_STATE),
        ),
    ),
    hints=(
        "Three places change: before the first step, the script looks for the checkpoint; one "
        "process of the whole job saves; and it saves under another name first. Notebook 11 has "
        "each of them.",
        "Every process loads the model, the optimizer and the epoch, before DDP(model). "
        "os.replace(new, path) makes the new file the checkpoint, all or nothing.",
        "dist.get_rank() tells the processes of all nodes apart. After loading, dist.barrier() "
        "keeps a fast rank 0 from replacing the file while others still read it.",
    ),
)
