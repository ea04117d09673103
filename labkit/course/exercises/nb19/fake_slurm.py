"""Stand for Slurm's commands inside a job that this machine simulates, each as a small program.

``python fake_slurm.py NAME …`` is ``srun``, ``scancel``, ``scontrol`` or ``hostname`` of a job; or
``torchrun`` and ``python``, which then only write down how they were called. The job is described
by ``job.json`` in the folder that the variable ``LABKIT_FAKE_SLURM`` names. Only Python's own
modules are imported, so that each of them is there at once.
"""

from __future__ import annotations

import contextlib
import getopt
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

FOLDER = "LABKIT_FAKE_SLURM"
#: The cores of a task, in the environment of what srun starts.
CORES = "LABKIT_FAKE_SLURM_CORES"
#: Seconds that a command is held at most: a job that nobody wants any more ends by itself. Others
#: take a moment, so that a script which does not wait for them has ended before.
HELD_SECONDS, MOMENT = 20.0, 0.2
#: What ``torchrun`` and ``python`` are called by, and what is written down of it.
MODULE = "torch.distributed.run"
#: The first word of a call of Python that is none of torchrun.
PYTHON = "--python"
VARIABLES = (
    "SLURMD_NODENAME",
    "SLURM_LOCALID",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    CORES,
)
_OPTIONS = """
    nodes= ntasks= ntasks-per-node= cpus-per-task= time= signal= requeue no-requeue job-name=
    output= error= input= open-mode= partition= account= qos= mem= mem-per-cpu= mem-per-gpu= gpus=
    gpus-per-node= gpus-per-task= cpus-per-gpu= gres= exclusive constraint= mail-type= mail-user=
    export= chdir= nodelist= exclude= label unbuffered kill-on-bad-exit wait= mpi= cpu-bind=
    gpu-bind= overlap exact comment= hint= distribution= threads-per-core= array= dependency=
    reservation= begin= deadline= time-min= nice verbose quiet parsable jobid= licenses= tmp=
    switches= wait-all-nodes= prefer= ntasks-per-gpu= ntasks-per-core= ntasks-per-socket=
"""
#: Options of sbatch and srun; "=" takes a value.
LONG = _OPTIONS.split()
SHORT = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time", "J": "job-name",
    "o": "output", "e": "error", "i": "input", "p": "partition", "A": "account", "q": "qos",
    "G": "gpus", "C": "constraint", "w": "nodelist", "x": "exclude", "D": "chdir", "l": "label",
    "u": "unbuffered", "K": "kill-on-bad-exit", "W": "wait", "m": "distribution", "a": "array",
    "d": "dependency", "b": "begin", "v": "verbose", "Q": "quiet", "L": "licenses",
}  # fmt: skip


def read_options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Read the options of sbatch or srun; return them by their long names, and the rest.

    Raises
    ------
    getopt.GetoptError
        If there is one that Slurm does not have.
    """
    # These may have a value, but need none.
    plain = [
        re.sub(r"^(--(?:kill-on-bad-exit|exclusive|nice)|-K)=?\d*\w*$", r"\1", word)
        if i < _end(words)
        else word
        for i, word in enumerate(words)
    ]
    short = "".join(k + (":" if f"{long}=" in LONG else "") for k, long in SHORT.items())
    read, rest = getopt.getopt(plain, short, LONG)
    found = {}
    for name, value in read:
        bare = name.lstrip("-")
        found[bare if name.startswith("--") else SHORT[bare]] = value
    return found, rest


def _end(words: Sequence[str]) -> int:
    """Return where a command begins behind the options: at the first word that is none of them."""
    skip = False
    for i, word in enumerate(words):
        if skip:
            skip = False
        elif not word.startswith("-"):
            return i
        elif f"{word[2:]}=" in LONG:
            skip = True  # its value
        elif len(word) == 2 and f"{SHORT.get(word[1])}=" in LONG:
            skip = True
    return len(words)


def expanded(text: str) -> list[str]:
    """Return the names in a list such as ``gpu-[7-8,12]``."""
    names = []
    for part in re.findall(r"[^,\[]+(?:\[[^]]*\])?", text):
        head, _, inside = part.partition("[")
        if not inside:
            names.append(head)
            continue
        for piece in inside.rstrip("]").split(","):
            first, _, last = piece.partition("-")
            names += [f"{head}{i:0{len(first)}}" for i in range(int(first), int(last or first) + 1)]
    return names


def srun(words: Sequence[str], folder: Path) -> int:
    """Start a command on the nodes of the job; return the worst exit code."""
    job = json.loads((folder / "job.json").read_text())
    options, command = read_options(words)
    if not command:
        print("srun: fatal: No command given to execute.", file=sys.stderr)
        return 1
    nodes = job["nodes"][: int(options.get("nodes") or len(job["nodes"]))]
    each = int(options.get("ntasks-per-node") or job["options"].get("ntasks-per-node") or 0)
    count = int(options.get("ntasks") or 0) or each * len(nodes)
    count = count or int(job["options"].get("ntasks") or 0) or len(nodes)
    each = each or -(-count // len(nodes))
    # Since Slurm 22.05 the job's --cpus-per-task does not count.
    cores = options.get("cpus-per-task") or os.environ.get("SRUN_CPUS_PER_TASK") or "1"
    tasks = []
    for rank in range(count):
        node = min(rank // each, len(nodes) - 1)
        place = {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank - node * each),
            "SLURM_NODEID": str(node),
            "SLURMD_NODENAME": nodes[node],
            "SLURM_NTASKS": str(count),
            "SLURM_STEP_ID": "0",
            CORES: cores,
        }
        env = {**os.environ, **place}
        own = list(command)
        if job["mode"] == "real":  # all nodes are this machine
            own = [_here(word, job["nodes"]) for word in own]
            env = {k: v if k in place else _here(v, job["nodes"]) for k, v in env.items()}
        tasks.append(subprocess.Popen(own, env=env))
        (folder / f"{tasks[-1].pid}.task").touch()
    codes = []
    for task in tasks:
        codes.append(task.wait())
        (folder / f"{task.pid}.task").unlink()
    return max(abs(code) for code in codes)


def _here(text: str, nodes: Sequence[str]) -> str:
    for node in nodes:
        text = re.sub(rf"\b{re.escape(node)}\b", "localhost", text)
    return text


def scancel(words: Sequence[str], folder: Path) -> int:
    """Send a signal to what srun has started; with --full to the batch shell too, or only to it."""
    job = json.loads((folder / "job.json").read_text())
    read, rest = getopt.gnu_getopt(
        words, "s:fbQv", ["signal=", "full", "batch", "quiet", "verbose"]
    )
    options = {name.lstrip("-")[0]: value for name, value in read}
    if [word.partition(".")[0] for word in rest] != [
        str(job["id"])
    ]:  # a step has a number too: 7.0
        print("scancel: error: Invalid job id specified", file=sys.stderr)
        return 1
    name = options.get("s", "").upper().removeprefix("SIG")
    numbers = {key: one for one in signal.Signals for key in (one.name[3:], str(one.value))}
    if name not in numbers:
        print(f"scancel: the fake Slurm has no signal {name!r}; --signal=TERM", file=sys.stderr)
        return 1
    processes = [] if "b" in options else [int(path.stem) for path in folder.glob("*.task")]
    if {"f", "b"} & options.keys():
        processes.append(os.getppid())
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, numbers[name])
    return 0


def scontrol(words: Sequence[str], folder: Path) -> int:
    """Answer ``show hostnames``, and take ``requeue``."""
    job = json.loads((folder / "job.json").read_text())
    match list(words):
        case ["show", "hostname" | "hostnames", *lists]:
            print(*expanded((lists or [os.environ["SLURM_JOB_NODELIST"]])[0]), sep="\n")
            return 0
        case ["requeue", number] if number == str(job["id"]):
            (folder / "requeued").touch()
            return 0
        case ["requeue", *_]:
            print("scontrol: Invalid job id specified", file=sys.stderr)
            return 1
    print(f"scontrol: the fake Slurm has no {' '.join(words)!r}", file=sys.stderr)
    return 1


def torchrun(words: Sequence[str], folder: Path) -> int:
    """Write down how torchrun was called, and hold it if this job is to last."""
    told = {"words": list(words), **{name: os.environ.get(name) for name in VARIABLES}}
    draft = folder / uuid.uuid4().hex
    draft.write_text(json.dumps(told))
    draft.rename(draft.with_suffix(".call"))
    held = json.loads((folder / "job.json").read_text())["mode"] == "hold"
    time.sleep(HELD_SECONDS if held else MOMENT)
    return 0


def python(words: Sequence[str], folder: Path) -> int:
    """Be torchrun if it is called as a module; another script is not run, but told as a task."""
    if list(words[:2]) == ["-m", MODULE]:
        return torchrun(words[2:], folder)
    return torchrun([PYTHON, *words], folder)


def main(name: str, words: Sequence[str]) -> int:
    """Play one command; return its exit code."""
    folder = Path(os.environ[FOLDER])
    if name == "hostname":
        print(os.environ["SLURMD_NODENAME"])
        return 0
    commands = {"srun": srun, "scancel": scancel, "scontrol": scontrol, "torchrun": torchrun}
    if name in ("python", "python3"):
        return python(words, folder)
    if name not in commands:  # a Slurm that is really here must not hear of this job
        print(f"{name}: the fake Slurm has no such command", file=sys.stderr)
        return 1
    try:
        return commands[name](words, folder)
    except getopt.GetoptError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
