"""The usual ways to get a script for several processes wrong, and what shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import edit
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
    """Tell whether each of several ranks went through all rows."""
    return len(rows) > 1 and set(rows) == {sum(wanted)}


def _share_for_another_size(yours: Facts, expected: Facts) -> bool:
    """Tell whether a share is wrong, on another number of processes than two."""
    return len(expected[PER_STEP]) != 2 and any(
        yours[key] != expected[key] for key in (PER_STEP, IN_ALL)
    )


MISTAKES = (
    Mistake(
        "The script uses the process group before it has formed one: "
        "dist.init_process_group() comes first. torchrun has set the variables that it reads.",
        raises=r"[Dd]efault process group has not been initialized",
        shown_by={
            "no group": edit(
                'dist.init_process_group("nccl" if device.type == "cuda" else "gloo")', ""
            )
        },
    ),
    Mistake(
        "The ranks call different collectives: a call that every rank has to make, such as "
        "dist.barrier() or dist.all_reduce(), stands where only some of them reach it. Keep it "
        "out of `if dist.get_rank() == 0:`, which is for writing and printing only.",
        stuck=r"ranks 0–\d+ wait for one another.* rank 0 waits in (barrier |.*They are in diff)",
        raises=r"^Died: signal 6 \(SIGABRT\)",  # gloo's end for a message that is too long
        shown_by={
            "a barrier of rank 0": edit(
                "save(checkpoint, model, optimizer, epoch + 1)",
                "save(checkpoint, model, optimizer, epoch + 1)\ndist.barrier()",
            ),
            "an all-reduce of rank 0": edit(
                "dist.all_reduce(total)",
                "",
                "if dist.get_rank() == 0:",
                "if dist.get_rank() == 0:\n    dist.all_reduce(total)",
            ),
        },
    ),
    Mistake(
        "Started again, the ranks make different numbers of steps, because only some of them go "
        "on from the checkpoint. Every rank has to load it, and the epoch that is in it.",
        raises=rf"(?s){GONE}.*\n{AGAIN}$",
        stuck=rf"(?s){GONE}.*\n{AGAIN}$",
        shown_by={
            "only rank 0 loads": edit(
                "if checkpoint.exists():", "if checkpoint.exists() and dist.get_rank() == 0:"
            )
        },
    ),
    Mistake(
        "A rank leaves the script while the others still wait for it in a collective. Every "
        "rank goes through all steps of all epochs.",
        raises=rf"(?s){GONE}.*\n{TWO}$",
        stuck=rf"(?s){GONE}.*\n{TWO}$",
        shown_by={
            "a return too early": edit(
                "dist.all_reduce(total)",
                "dist.all_reduce(total)\nif dist.get_rank() != 0:\n    return",
            )
        },
    ),
    Mistake(
        "The script does not go on from the checkpoint: it repeats the steps of epoch 1. Load the "
        "model, the optimizer and the epoch before the first step, on every rank.",
        when=shows(_began_again),
        shown_by={"does not resume": edit("if checkpoint.exists():", "if False:")},
    ),
    Mistake(
        "A number of processes is written into the script. dist.get_world_size() says how "
        "many there are this time, and DistributedSampler(data) finds it out by itself.",
        when=shows(_share_for_another_size),
        shown_by={
            "half of the batch": edit("BATCH_SIZE // dist.get_world_size()", "BATCH_SIZE // 2"),
        },
    ),
    Mistake(
        f"Every rank computes all {ROWS:,} rows of each epoch: they all do the same work. A "
        "DistributedSampler gives each rank a share of its own.",
        when=_counts(IN_ALL, _same_work),
        hint="DataLoader(data, batch_size=…, sampler=DistributedSampler(data)): the loader of "
        "each rank then gives a part of the rows, and all parts together are all rows.",
        shown_by={
            "no sampler": edit(
                "batch_size=share, sampler=sampler", "batch_size=BATCH_SIZE, shuffle=True"
            ),
        },
    ),
    Mistake(
        f"Each rank computes {BATCH} rows per step, so the global batch grows with the number "
        f"of processes. All ranks together compute {BATCH} rows per step: on two "
        f"processes, {BATCH // 2} rows each.",
        when=_counts(PER_STEP, lambda rows, _: len(rows) > 1 and set(rows) == {BATCH}),
        shown_by={"full batch": edit("BATCH_SIZE // dist.get_world_size()", "BATCH_SIZE")},
    ),
    Mistake(
        "Epoch 2 takes the rows in the order of epoch 1: tell the sampler the epoch at its "
        "beginning, sampler.set_epoch(epoch).",
        when=shows(lambda y, e: y["rows of the steps"] == SAME_ORDER),
        shown_by={"no set_epoch": edit("sampler.set_epoch(epoch)", "")},
    ),
    Mistake(
        f"The script trains for a different number of epochs than --epochs={EPOCHS} asks for.",
        when=shows(lambda y, e: y["steps"] != e["steps"] and y[PER_STEP] == e[PER_STEP]),
        shown_by={"three epochs": edit("range(done, epochs)", "range(done, 3)")},
    ),
    Mistake(
        "The learning rate grows with the number of processes. The global batch stays what it "
        f"was, so the rate stays {RATE} as well: DDP averages the gradients of the ranks.",
        when=shows(lambda y, e: y["learning rate in it"] == RATE * len(e[PER_STEP]) != RATE),
        shown_by={"larger rate": edit("lr=0.1", "lr=0.1 * dist.get_world_size()")},
    ),
    Mistake(
        "The script has not trained on any row: each epoch goes through all batches of the rank's "
        "share.",
        when=shows(lambda y, e: not any(y[IN_ALL])),
        shown_by={"no epoch": edit("in range(done, epochs):", "in []:")},
    ),
    Mistake(
        "The ranks end with different weights: each trains alone, on its own share. DDP(model) "
        "averages the gradients, and it is the wrapped model that has to be called.",
        when=shows(lambda y, e: y["weights of the ranks"] != e["weights of the ranks"]),
        shown_by={
            "no DDP": edit("ddp = DDP(model)", "ddp = model"),
        },
    ),
    Mistake(
        "Every rank writes the checkpoint, all to the same file. One is enough, as all have "
        "the same weights: only rank 0 saves.",
        raises=r"(?s)^FileNotFoundError: .*'[^']*' -> '",
        when=_counts(SAVES, lambda saves, _: len(saves) > 1 and all(saves)),
        shown_by={
            "every rank saves": edit(
                "if dist.get_rank() == 0:", "if True:", "{os.getpid()}", "part"
            ),
        },
    ),
    Mistake(
        "A rank other than 0 writes the checkpoint. On one process there is only rank 0, so "
        "rank 0 is the one to write.",
        when=_counts(SAVES, lambda saves, _: not saves[0] and any(saves[1:])),
        shown_by={
            "rank 1 saves": edit("dist.get_rank() == 0:", "dist.get_rank() == 1:"),
        },
    ),
    Mistake(
        "There is no checkpoint where --checkpoint=PATH says: it is written somewhere else.",
        when=shows(lambda y, e: y[EPOCH] == NOTHING),
        shown_by={
            "its own path": edit(
                "main(**vars(parser.parse_args()))",
                'main(parser.parse_args().epochs, Path("own.pt"))',
            )
        },
    ),
    Mistake(
        "The checkpoint is written only once in the run. Write one after each epoch, "
        "so that a killed run loses one epoch at most.",
        when=_counts(SAVES, lambda saves, wanted: sum(saves) < sum(wanted)),
        shown_by={
            "saves at the end": edit(
                "if dist.get_rank() == 0:", "if dist.get_rank() == 0 and epoch + 1 == epochs:"
            )
        },
    ),
    Mistake(
        "The checkpoint is written over the old one: a process that is killed meanwhile leaves "
        "half a file, and the good one is lost. Write a temporary file and rename it, as "
        "single.py does.",
        when=shows(lambda y, e: not y["saved under another name first"]),
        shown_by={
            "in its place": edit(
                'unfinished := f"{checkpoint}.{os.getpid()}"',
                "checkpoint",
                "os.replace(unfinished, checkpoint)",
                "",
            )
        },
    ),
    Mistake(
        "The names of the weights begin with module., so no script without DDP can load them. "
        "Save the model itself: model.state_dict(), which is ddp.module.state_dict().",
        when=shows(lambda y, e: str(y[NAMES]).startswith("module.")),
        raises=r"(?s)^RuntimeError: Error.* loading state_dict for DistributedDataParallel",
        shown_by={
            "saves the wrapper": edit(
                "(checkpoint, model, optimizer, epoch + 1)",
                "(checkpoint, ddp, optimizer, epoch + 1)",
            ),
            "loads into the wrapper": edit(
                "ddp = DDP(model)",
                "",
                "done = 0  # epochs",
                "done = 0  # epochs\nddp = DDP(model)",
                'model.load_state_dict(state["model"])',
                'ddp.load_state_dict(state["model"])',
            ),
        },
    ),
    Mistake(
        "The checkpoint has a smaller epoch than the number of epochs done: the next start repeats "
        "the last one. After the first epoch it is 1.",
        when=shows(lambda y, e: y[EPOCH] == e[EPOCH] - 1),
        shown_by={"epoch not counted": edit("optimizer, epoch + 1)", "optimizer, epoch)")},
    ),
    Mistake(
        "The script goes on with the model's weights, but without the optimizer's state: the "
        "momentum of the steps before is lost. Load both.",
        when=shows(lambda y, e: y["weights in it"] == NO_STATE),
        shown_by={"no optimizer": edit('optimizer.load_state_dict(state["optimizer"])', "")},
    ),
)
