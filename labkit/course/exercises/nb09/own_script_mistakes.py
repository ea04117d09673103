"""The usual ways to get a script for several processes wrong, and what shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Mistake
from ...mistakes import When
from .alone import BATCH, EPOCHS, RATE, ROWS
from .own_script import AGAIN, NO_STATE, NOTHING, SAME_ORDER, TWO

#: Facts of a part, as :mod:`.own_script` finds them.
Facts = dict[str, Any]
#: What is said to a rank whose partner has left the script, by gloo or by labkit.
GONE = r"(?:Connection (?:closed|reset)|Broken pipe|which (?:has|have) ended)"
PER_STEP, IN_ALL = "rows per step, by rank", "rows in all, by rank"
SAVES, EPOCH, NAMES = "saves, by rank", "epoch in the checkpoint", "names in it"


def shows(of: Callable[[Facts, Facts], bool]) -> When:
    """Return the predicate of a mistake that the facts of a training show."""
    return lambda yours, expected, _: of(yours, expected)


def _counts(key: str, found: Callable[[list[int], list[int]], bool]) -> When:
    """Return the predicate of a mistake that the numbers of all ranks show."""
    return shows(lambda y, e: y[key] != e[key] and found(y[key], e[key]))


def _began_again(yours: Facts, expected: Facts) -> bool:
    return bool(sum(expected[IN_ALL]) < sum(yours[IN_ALL]) == EPOCHS * ROWS)


def _same_work(rows: list[int], wanted: list[int]) -> bool:
    """Return whether each of several ranks went through all rows."""
    return len(rows) > 1 and set(rows) == {sum(wanted)}


def _share_for_another_size(yours: Facts, expected: Facts) -> bool:
    """Return whether a share is wrong, on another number of processes than two."""
    return len(expected[PER_STEP]) != 2 and any(
        yours[key] != expected[key] for key in (PER_STEP, IN_ALL)
    )


MISTAKES = (
    Mistake(
        "The script uses the process group before it has formed one: "
        "dist.init_process_group() comes first. torchrun has set the variables that it reads.",
        raises=r"[Dd]efault process group has not been initialized",
    ),
    Mistake(
        "The ranks call different collectives: a call that every rank has to make, such as "
        "dist.barrier() or dist.all_reduce(), stands where only some of them reach it. Keep it "
        "out of `if dist.get_rank() == 0:`, which is for writing and printing only.",
        stuck=r"ranks 0–\d+ wait for one another.* rank 0 waits in (barrier |.*They are in diff)",
        raises=r"^Died: signal 6 \(SIGABRT\)",  # gloo's end for a message that is too long
    ),
    Mistake(
        "Started again, the ranks make different numbers of steps, because only some of them go "
        "on from the checkpoint. Every rank has to load it, and the epoch that is in it.",
        raises=rf"(?s){GONE}.*\n{AGAIN}$",
        stuck=rf"(?s){GONE}.*\n{AGAIN}$",
    ),
    Mistake(
        "A rank leaves the script while the others still wait for it in a collective. Every "
        "rank goes through all steps of all epochs.",
        raises=rf"(?s){GONE}.*\n{TWO}$",
        stuck=rf"(?s){GONE}.*\n{TWO}$",
    ),
    Mistake(
        "The script does not go on from the checkpoint: it repeats the steps of epoch 1. Load the "
        "model, the optimizer and the epoch before the first step, on every rank.",
        when=shows(_began_again),
    ),
    Mistake(
        "A number of processes is written into the script. dist.get_world_size() says how "
        "many there are this time, and DistributedSampler(data) finds it out by itself.",
        when=shows(_share_for_another_size),
    ),
    Mistake(
        f"Every rank computes all {ROWS:,} images of each epoch: they all do the same work. A "
        "DistributedSampler gives each rank a share of its own.",
        when=_counts(IN_ALL, _same_work),
        hint="DataLoader(data, batch_size=…, sampler=DistributedSampler(data)): the loader of "
        "each rank then gives a part of the images, and all parts together are all images.",
    ),
    Mistake(
        f"Each rank computes {BATCH} images per step, so the global batch grows with the number "
        f"of processes. All ranks together compute {BATCH} images per step: on two "
        f"processes, {BATCH // 2} images each.",
        when=_counts(PER_STEP, lambda rows, _: len(rows) > 1 and set(rows) == {BATCH}),
    ),
    Mistake(
        "Epoch 2 takes the images in the order of epoch 1: tell the sampler the epoch at its "
        "beginning, sampler.set_epoch(epoch).",
        when=shows(lambda y, e: y["rows of the steps"] == SAME_ORDER),
    ),
    Mistake(
        f"The script trains for a different number of epochs than --epochs={EPOCHS} asks for.",
        when=shows(lambda y, e: y["steps"] != e["steps"] and y[PER_STEP] == e[PER_STEP]),
    ),
    Mistake(
        "The learning rate grows with the number of processes. The global batch stays what it "
        f"was, so the rate stays {RATE} as well: DDP averages the gradients of the ranks.",
        when=shows(lambda y, e: y["learning rate in it"] == RATE * len(e[PER_STEP]) != RATE),
    ),
    Mistake(
        "The script has not trained on any image: each epoch goes through all batches of the "
        "rank's share.",
        when=shows(lambda y, e: not any(y[IN_ALL])),
    ),
    Mistake(
        "The ranks end with different weights: each trains alone, on its own share. DDP(model) "
        "averages the gradients, and it is the wrapped model that has to be called.",
        when=shows(lambda y, e: y["weights of the ranks"] != e["weights of the ranks"]),
    ),
    Mistake(
        "Every rank writes the checkpoint, all to the same file. One is enough, as all have "
        "the same weights: only rank 0 saves.",
        raises=r"(?s)^FileNotFoundError: .*'[^']*' -> '",
        when=_counts(SAVES, lambda saves, _: len(saves) > 1 and all(saves)),
    ),
    Mistake(
        "A rank other than 0 writes the checkpoint. On one process there is only rank 0, so "
        "rank 0 is the one to write.",
        when=_counts(SAVES, lambda saves, _: not saves[0] and any(saves[1:])),
    ),
    Mistake(
        "There is no checkpoint where --save=PATH says: it is written somewhere else.",
        when=shows(lambda y, e: y[EPOCH] == NOTHING),
    ),
    Mistake(
        "The checkpoint is written only once in the run. Write one after each epoch, "
        "so that a killed run loses one epoch at most.",
        when=_counts(SAVES, lambda saves, wanted: sum(saves) < sum(wanted)),
    ),
    Mistake(
        "The checkpoint is written over the old one: a process that is killed meanwhile leaves "
        "half a file, and the good one is lost. Write a temporary file and rename it, as "
        "single.py does.",
        when=shows(lambda y, e: not y["saved under another name first"]),
    ),
    Mistake(
        "The names of the weights begin with module., so no script without DDP can load them. "
        "Save the model itself: model.state_dict(), which is ddp.module.state_dict().",
        when=shows(lambda y, e: str(y[NAMES]).startswith("module.")),
        raises=r"(?s)^RuntimeError: Error.* loading state_dict for DistributedDataParallel",
    ),
    Mistake(
        "The checkpoint has a smaller epoch than the number of epochs done: the next start repeats "
        "the last one. After the first epoch it is 1.",
        when=shows(lambda y, e: y[EPOCH] == e[EPOCH] - 1),
    ),
    Mistake(
        "The script goes on with the model's weights, but without the optimizer's state: the "
        "momentum of the steps before is lost. Load both.",
        when=shows(lambda y, e: y["weights in it"] == NO_STATE),
    ),
)
