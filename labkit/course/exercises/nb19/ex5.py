"""Exercise 19-5: a batch script for two nodes of a Slurm, made from one for one node."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....base import times
from ...exercise import Exercise, Failed
from ...script_start import StartFailed
from . import fake_slurm
from .batch import Asked, Job, Refused, Said, wait_until
from .batch_mistakes import MISTAKES

NODES, PROCESSES, CORES, LIMIT, WARNING, RESTARTS = 2, 4, 24, 120, 90, 3
#: What the job is told to run: one of the words has a space in it.
WORDS = ["train.py", "--epochs=3", "--name=first try"]
#: Two jobs that could run at the same time, on nodes with names like these.
JOBS = ((4711, ("gpu-7", "gpu-8")), (4712, ("gpu-3", "gpu-12")))

ASKS = "what the #SBATCH lines ask for"
CALLS = "what srun starts: a torchrun that only writes it down"
WARNED = f"the job is warned {WARNING} s before its end"
REAL = "two torchruns with four processes each, on this machine"


NONE, SHELL, FIRST = Said("none"), Said("the batch shell"), Said("c10d at the first node")
BY_SRUN, OTHER_PORT = Said("1 on each node, by srun"), Said("at another port")

#: In short options, with the cores by a variable and the first node by the batch shell's own name.
ANOTHER = """
#!/bin/bash
#SBATCH -N 2 -c 24 -t 0-2
#SBATCH --signal=B:SIGTERM@90

function again {
    scontrol requeue $SLURM_JOBID
    exit
}
trap again TERM
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
endpoint=$(hostname):$((SLURM_JOB_ID % 30000 + 2000))
options=(--nnodes 2 --nproc_per_node 4 --max_restarts 3 --rdzv_id $SLURM_JOB_ID)
srun -K python -m torch.distributed.run "${options[@]}" --rdzv_backend c10d \\
    --rdzv_endpoint $endpoint "$@" &
wait $!
"""


def trial(path: Path, seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read what the script asks for, run it on the fake Slurm, warn it, and run it for real.

    Yields the name of each part and what was found.
    """
    _parse(path)
    try:
        yield ASKS, asks(Asked.of(path.read_text(encoding="utf-8")))
    except Refused as error:
        raise _failed("Refused", str(error), []) from None
    found = [_recorded(path, *job) for job in JOBS]
    yield CALLS, calls(found)
    yield WARNED, _warned(path)
    yield REAL, _started(path, seconds)


def expected() -> dict[str, dict[str, Any]]:
    """Return what is to be found in each part."""
    return {
        ASKS: {
            "nodes": NODES,
            "tasks per node": 1,
            "cores per task": CORES,
            "time limit, in minutes": float(LIMIT),
            "warned": SHELL,
            "seconds before the limit": WARNING,
            "#SBATCH lines below a command": 0,
        },
        CALLS: {
            "torchrun": BY_SRUN,
            "cores of each": str(CORES),
            "--nnodes": str(NODES),
            "--nproc-per-node": str(PROCESSES),
            "--max-restarts": RESTARTS,
            "rendezvous": FIRST,
            "a second job meets": OTHER_PORT,
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "torchrun starts": WORDS,
            "the script waits for srun": True,
        },
        WARNED: {"back in the queue": True, "torchrun in the second run": BY_SRUN},
        REAL: {"ranks": NODES * PROCESSES, "WORLD_SIZE": NODES * PROCESSES, "ended": Said("well")},
    }


def asks(asked: Asked) -> dict[str, Any]:
    """Describe what a script asks for, in the terms of :func:`expected`."""
    whom, _, before = asked.warning or ("none", 0, 0)
    limit = asked.minutes
    return {
        "nodes": asked.number("nodes", 1),
        "tasks per node": asked.per_node,
        "cores per task": asked.number("cpus-per-task", 1),
        "time limit, in minutes": NONE if limit is None else float(limit),
        "warned": {"none": NONE, "B": SHELL}.get(whom, Said("only what srun has started")),
        "seconds before the limit": before or NONE,
        "#SBATCH lines below a command": asked.ignored,
    }


def calls(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Describe how two jobs called torchrun."""
    first, second = found
    ports = [told["endpoint"].rpartition(":")[2] for told in found]
    same = ports[0] == ports[1] != ""
    return {
        "torchrun": first["torchrun"],
        "cores of each": first["cores"],
        "--nnodes": first["nnodes"],
        "--nproc-per-node": first["nproc"],
        "--max-restarts": first["restarts"],
        "rendezvous": first["place"] if first["place"] != FIRST else second["place"],
        "a second job meets": Said("at the same port") if same else OTHER_PORT,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": first["variable"],
        "torchrun starts": first["starts"],
        "the script waits for srun": first["waits"],
    }


def _parse(path: Path) -> None:
    """Make bash read the script, without running it."""
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise _failed("SyntaxError", "bash cannot read the script", done.stderr.splitlines())


def _failed(name: str, message: str, said: list[str]) -> StartFailed:
    failed = Failed(name, message)
    return StartFailed(failed, [failed.text(), *said[-10:]])


def _recorded(path: Path, number: int, nodes: tuple[str, ...], restart: int = 0) -> dict[str, Any]:
    """Run the script with a torchrun that only writes down how it was called."""
    job = Job(path, WORDS, number, nodes, restart=restart)
    with job.running() as shell:
        if not wait_until(lambda: shell.poll() is not None, times.BATCH_JOB):
            raise _failed(
                "TimedOut", f"the script did not end within {times.BATCH_JOB:g} s", job.said()
            )
        told = {**_described(job, nodes), "waits": _has_waited(shell)}
        if told["torchrun"] == NONE and told["waits"]:
            raise _failed("Died", f"no torchrun; exit code {shell.returncode}", job.said())
    return told


def _has_waited(shell: subprocess.Popen[bytes]) -> bool:
    """Return whether nothing of the job went on when its script had ended."""
    try:
        os.killpg(shell.pid, 0)
    except ProcessLookupError:
        return True
    return False


def _described(job: Job, nodes: tuple[str, ...]) -> dict[str, Any]:
    """Describe how a job has called torchrun, as its first call says, and whether all say it."""
    made = job.calls()
    read = [_read(call["words"]) for call in made if call["words"][:1] != [fake_slurm.PYTHON]]
    one = read[0] if read else {}
    places = {call["place"] for call in read}
    endpoint = next(iter(places)) if len(places) == 1 else ""
    host = endpoint.rpartition(":")[0]
    if len(places) > 1:
        place = Said("each node at a place of its own")
    elif not endpoint:
        place = Said("none")
    elif one["backend"] != "c10d":
        place = Said(f"{one['backend']} at {host}")
    else:
        place = FIRST if host == nodes[0] else Said(f"c10d at {host or endpoint}")
    return {
        "torchrun": _who(made, nodes),
        "cores": (made[0][fake_slurm.CORES] or NONE) if made else NONE,
        "nnodes": one.get("nnodes", ""),
        "nproc": one.get("nproc", ""),
        "restarts": one.get("restarts", 0),
        "place": place,
        "endpoint": endpoint,
        "variable": (made[0]["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] or NONE) if made else NONE,
        "starts": one.get("starts", []),
    }


def _who(made: list[dict[str, Any]], nodes: tuple[str, ...]) -> Said:
    """Return how often torchrun was called, and by whom."""
    if not made:
        return NONE
    if any(call[fake_slurm.CORES] is None for call in made):
        return Said("by the batch shell")
    if any(call["words"][:1] == [fake_slurm.PYTHON] for call in made):
        return Said("none: srun starts Python")
    counts = [sum(call["SLURMD_NODENAME"] == node for call in made) for node in nodes]
    if len(set(counts)) > 1:
        return Said(f"{counts[0]} and {counts[1]} on the nodes, by srun")
    return Said(f"{counts[0]} on each node, by srun")


def _read(words: list[str]) -> dict[str, Any]:
    """Read torchrun's words with its own parser."""
    import contextlib
    import io

    from torch.distributed.run import get_args_parser

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            read = get_args_parser().parse_args(words)
    except SystemExit:
        why = said.getvalue().strip().rpartition("error: ")[2]
        raise _failed("Refused", f"torchrun: {why}", ["torchrun " + " ".join(words)]) from None
    least, _, most = str(read.nnodes).partition(":")
    return {
        "nnodes": least if most in ("", least) else read.nnodes,
        "nproc": str(read.nproc_per_node),
        "restarts": read.max_restarts,
        "backend": "standalone" if read.standalone else read.rdzv_backend,
        "place": read.rdzv_endpoint or ("this node" if read.standalone else ""),
        "starts": [read.training_script, *read.training_script_args],
    }


def _warned(path: Path) -> dict[str, Any]:
    """Run the script with a torchrun that does not end, and warn it as it has asked for."""
    job = Job(path, WORDS, *JOBS[0], mode="hold")
    with job.running() as shell:
        wait_until(lambda: len(job.calls()) == NODES or shell.poll() is not None, times.BATCH_JOB)
        assert job.asked.warning is not None, "the part before has seen it"
        shell.send_signal(job.asked.warning[1])
        # Sooner than what is held has ended: a trap that waits for the foreground runs after that.
        soon = fake_slurm.HELD_SECONDS / 2
        wait_until(lambda: job.was_requeued() or shell.poll() is not None, soon)
        again = job.was_requeued() or wait_until(job.was_requeued, 0.2)
    if not again:
        return {"back in the queue": False, "torchrun in the second run": NONE}
    return {
        "back in the queue": True,
        "torchrun in the second run": _recorded(path, *JOBS[0], restart=1)["torchrun"],
    }


#: What each process of the real run does: it writes down where it is.
_PROCESS = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK")
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as file:
    json.dump({name: os.environ[name] for name in names}, file)
"""


def _started(path: Path, seconds: float) -> dict[str, Any]:
    """Run the script with the real torchrun; both nodes are this machine."""
    with tempfile.TemporaryDirectory(prefix="labkit-") as name:
        folder = Path(name)
        (folder / "process.py").write_text(_PROCESS)
        words = [str(folder / "process.py"), name]
        job = Job(path, words, _free_job(path), JOBS[0][1], mode="real")
        with job.running() as shell:
            if not wait_until(lambda: shell.poll() is not None, seconds):
                raise _failed("TimedOut", f"stopped after {seconds:g} s", job.said())
            said = job.said()
        told = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    if not told:
        raise _failed("Died", f"no process; exit code {shell.returncode}", said)
    return {
        "ranks": len(told),
        "WORLD_SIZE": int(told[0]["WORLD_SIZE"]),
        "ended": Said("well") if not shell.returncode else Said(f"exit code {shell.returncode}"),
    }


def _free_job(path: Path) -> int:
    """Return the number of a job for which the script finds a port that nobody uses here."""
    while True:
        number = random.randrange(5_000, 90_000)
        port = _recorded(path, number, JOBS[0][1])["endpoint"].rpartition(":")[2]
        with socket.socket() as probe:
            if not port.isdigit() or probe.connect_ex(("localhost", int(port))):
                return number


EXERCISE = Exercise(
    id="19-5",
    title="Two nodes of a Slurm",
    answer="my_job.sbatch",
    where="file",
    start="scripts/one_node.sbatch",
    trial=trial,
    expected=expected,
    seconds=90.0,
    mistakes=MISTAKES,
    hints=(
        "Six #SBATCH lines: nodes, tasks per node, cores per task, time, signal, output. Then, in "
        "this order: trap, export, the first node's name, srun with torchrun behind it, wait.",
        "One task per node is one torchrun per node. srun gets the cores by "
        '--cpus-per-task="$SLURM_CPUS_PER_TASK". The first node is the first line of scontrol '
        'show hostnames "$SLURM_JOB_NODELIST".',
        "--signal=B:USR1@90 warns the batch shell; trap '…' USR1 says what it does then, which it "
        "only does while it waits: srun … & and wait. In the trap, scancel --signal=TERM "
        '"$SLURM_JOB_ID" tells the training, wait lets it end, and scontrol requeue '
        '"$SLURM_JOB_ID" puts the job back.',
    ),
)
