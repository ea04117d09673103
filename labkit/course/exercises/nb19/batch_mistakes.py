"""The usual ways to get a batch script for several nodes wrong, and what shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Mistake
from ...mistakes import When
from .batch import Said

#: Facts of a part, as :mod:`.ex5` finds them.
Facts = dict[str, Any]
SRUN = 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK" torchrun'


def _fact(name: str, of: Callable[[Any], bool]) -> When:
    """Return the predicate of a mistake that shows in one fact that is not as it should be."""
    return lambda y, e, _: name in y and y[name] != e[name] and of(y[name])


def _is(name: str, *values: Any) -> When:
    return _fact(name, lambda found: found in values)


MISTAKES = (
    Mistake(
        "sbatch takes no file whose first line is not that of a script: #!/bin/bash.",
        raises=r"^Refused: This does not look like a batch script",
    ),
    Mistake(
        "bash cannot read the script: look for a quotation mark or a bracket that is not closed.",
        raises=r"^SyntaxError: bash cannot",
    ),
    Mistake(
        "sbatch refuses the script: it has no such option.",
        raises=r"^Refused: sbatch: ",
    ),
    Mistake(
        'torchrun refuses its words. Its options stand between torchrun and "$@"; each line but '
        "the last ends with a backslash.",
        raises=r"^Refused: torchrun: ",
    ),
    Mistake(
        "The script ended without a torchrun. What it printed stands above.",
        raises=r"^Died: no torchrun",
    ),
    Mistake(
        "sbatch stops reading #SBATCH lines at the first command: those below it are comments. "
        "Put all of them directly below #!/bin/bash.",
        when=_fact("#SBATCH lines below a command", bool),
    ),
    Mistake(
        "The script asks for one node. --nodes=2 asks for two.",
        when=_is("nodes", 1),
    ),
    Mistake(
        "srun starts its command once per task. One task per node is enough: that one torchrun "
        "starts the processes of its node. With a task per process there would be as many "
        "torchruns, each with processes of its own.",
        when=_fact("tasks per node", lambda found: found > 1),
    ),
    Mistake(
        "--cpus-per-task is missing: a task then has one core, and four processes share it.",
        when=_is("cores per task", 1),
    ),
    Mistake(
        "A task is a torchrun here, with all processes of its node: --cpus-per-task has to give "
        "it all 24 cores of the node.",
        when=_is("cores per task", 6),
    ),
    Mistake(
        "There is no time limit in the script, so the job gets the partition's default, which may "
        "be minutes or days. --time=02:00:00 is two hours.",
        when=_is("time limit, in minutes", Said("none")),
    ),
    Mistake(
        "--time=02:00 is two minutes: Slurm reads minutes:seconds. Two hours are 02:00:00, or 120.",
        when=_is("time limit, in minutes", 2.0),
    ),
    Mistake(
        "Nobody is warned before the time limit: at the limit the job is killed, and stays out of "
        "the queue. --signal=B:USR1@90 sends USR1 90 seconds earlier.",
        when=_is("warned", Said("none")),
    ),
    Mistake(
        "Without B: Slurm sends the signal to what srun has started, not to the shell that runs "
        "this script: its trap hears nothing.",
        when=_is("warned", Said("only what srun has started")),
    ),
    Mistake(
        "The batch script runs on the first node only, and so does this torchrun: the second node "
        "stands idle. srun starts a command on all nodes of the job.",
        when=_is("torchrun", Said("by the batch shell")),
    ),
    Mistake(
        "srun starts Python, but nothing sets RANK and WORLD_SIZE for it: srun has to start "
        "torchrun.",
        when=_is("torchrun", Said("none: srun starts Python")),
    ),
    Mistake(
        "The script ends while srun still runs in the background, and with the script the job: "
        "Slurm then kills what is left. wait stays until srun has ended.",
        when=_is("the script waits for srun", False),
    ),
    Mistake(
        "The job has 24 cores per node, but srun gives one of them to torchrun: since Slurm 22.05 "
        "it does not take over --cpus-per-task. Say it again: srun --cpus-per-task="
        '"$SLURM_CPUS_PER_TASK", or export SRUN_CPUS_PER_TASK.',
        when=_is("cores of each", "1"),
    ),
    Mistake(
        "--standalone is for one node: each torchrun would be a job of its own. Two nodes need "
        "--rdzv-backend=c10d and --rdzv-endpoint.",
        when=_fact("rendezvous", lambda found: "standalone" in found),
    ),
    Mistake(
        "The torchruns are not told where to meet: --rdzv-endpoint is missing.",
        when=_is("rendezvous", Said("none")),
    ),
    Mistake(
        "This is the static rendezvous, in which each node has to be given its number: add "
        "--rdzv-backend=c10d.",
        when=_fact("rendezvous", lambda found: found.startswith("static")),
    ),
    Mistake(
        "SLURM_JOB_NODELIST is short for the names of all nodes, such as gpu-[7-8], and no name of "
        'one: scontrol show hostnames "$SLURM_JOB_NODELIST" prints one per line.',
        when=_fact("rendezvous", lambda found: "[" in found),
    ),
    Mistake(
        "The nodes are told different places, so they never meet. What srun starts is evaluated "
        "on each node; find the first node's name before srun.",
        when=_is("rendezvous", Said("each node at a place of its own")),
    ),
    Mistake(
        "The rendezvous is at the wrong host: it has to be a node of this job, the first one.",
        when=_fact("rendezvous", lambda found: found.startswith("c10d at")),
    ),
    Mistake(
        "Every job uses the same port: two jobs that share a node disturb each other. Compute the "
        "port from SLURM_JOB_ID.",
        when=_is("a second job meets", Said("at the same port")),
    ),
    Mistake(
        "--nproc-per-node counts the processes of one node, not of all together.",
        when=_is("--nproc-per-node", "8"),
    ),
    Mistake(
        "torchrun does not start its processes again when one fails: --max-restarts=3 is missing.",
        when=_is("--max-restarts", 0),
    ),
    Mistake(
        "Restarted processes find the addresses of the dead: export "
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 before srun.",
        when=_is("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", Said("none")),
    ),
    Mistake(
        'The words after the script\'s name do not arrive as they were: "$@", with its quotation '
        "marks, passes them on one by one.",
        when=_fact(
            "torchrun starts",
            lambda found: " ".join(found) == "train.py --epochs=3 --name=first try",
        ),
    ),
    Mistake(
        "The warning came, and the job was not put back into the queue. A trap runs scontrol "
        "requeue; and while a command runs in the foreground, bash does not run traps: start srun "
        "with & and wait for it.",
        when=_is("back in the queue", False),
    ),
)
