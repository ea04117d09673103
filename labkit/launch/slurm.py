"""Run the ranks of ``engines="slurm"`` as one job, and know how it fares.

The job's nodes need this machine's file system (at least the home folder, this Python and the
notebook's folder, as clusters have it), and reach this machine by its name or by the address in
``config={"IPController": {"location": "10.0.0.1"}}``.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base import times, trust
from ..base.errors import StartError
from ..base.files import reason

#: States of a job that is there or still comes; whatever else Slurm says is an end.
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "SIGNALING")
#: Reasons for a job to wait that waiting does not cure.
HOPELESS = (
    "AccountNotAllowed",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "PartitionConfig",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSNotAllowed",
)

#: What a user sets of ipyparallel's launcher, and the option of ``sbatch`` that it stands for.
_OPTIONS = {"queue": "partition", "account": "account", "qos": "qos", "timelimit": "time"}

#: What ``srun`` says of a rank that has ended with an error: on which host, and how.
_ENDED = re.compile(r"^srun: error: (\S+): tasks? [^:]+: (.+)$", re.MULTILINE)

# Ranks that end leave the others alone, and none of them is started a second time.
_SCRIPT = """\
#!/bin/sh
#SBATCH --ntasks={{n}}
#SBATCH --output="{{output_file}}"
#SBATCH --no-requeue
{options}
exec srun --kill-on-bad-exit=0 --wait=0 --mpi=none {{program_and_args}}
"""


def settings(folder: Path | str, name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of ``SlurmEngineSetLauncher`` for a job of this name.

    ``own`` are the user's: ipyparallel has them in its own script only, ``options`` not even
    there.
    """
    lines = [f"#SBATCH --{option}={own[t]}" for t, option in _OPTIONS.items() if own.get(t)]
    if own.get("options"):
        lines.append(f"#SBATCH {own['options']}")
    options = "\n".join(lines).replace("{", "{{").replace("}", "}}")
    bound = ["timeout", str(times.SLURM_COMMAND)]
    submit = f'exec timeout {times.SLURM_COMMAND} sbatch "$@" 2>&1'  # what is wrong is on stderr
    return {
        "batch_file_name": str(Path(folder) / "ranks.sbatch"),
        "output_file": str(Path(shared_folder()) / f"{name}.log"),
        "batch_template": _SCRIPT.format(options=options),
        "submit_command": ["sh", "-c", submit, "sbatch", f"--job-name={name}", "--export=ALL"],
        "job_id_regexp": r"Submitted batch job (\d+)",
        "job_id_regexp_group": 1,
        "delete_command": [*bound, "scancel", "--quiet"],
    }


def cancel_command(name: str) -> list[str]:
    """Return the command that cancels the job of this name, if there is one, and tidies up."""
    log = Path(shared_folder()) / f"{name}.log"
    script = 'timeout "$1" scancel --quiet --name="$2"; rm -f "$3"'
    return ["sh", "-c", script, "labkit", str(times.SLURM_COMMAND), name, str(log)]


def shared_folder() -> str:
    """Return a folder that the job's nodes have too, for what the job writes.

    Raises
    ------
    StartError
        If it cannot be made, or somebody else could lay something there.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(cache) / "labkit"
    if why := trust.unsafe_reason(folder):
        raise StartError(
            f"The output of a job of Slurm cannot go to {folder}: {why}; point XDG_CACHE_HOME at "
            "a folder that only you can write to and that the job's nodes have too."
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(
            f"The output of a job of Slurm cannot go to {folder} ({reason(error)}); point "
            "XDG_CACHE_HOME at a folder that the job's nodes have too."
        ) from None
    return str(folder)


def refusal(error: Exception) -> str:
    """Return what ``sbatch`` had against a job as a sentence, "" if it was something else."""
    if not isinstance(error, subprocess.CalledProcessError) or "sbatch" not in str(error.cmd):
        return ""
    if error.returncode == 124:
        return f"Slurm did not answer within {times.SLURM_COMMAND} s."
    lines = (error.output or b"").decode(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else f"sbatch ended with exit code {error.returncode}"
    for prefix in ("sbatch: ", "error: ", "Batch job submission failed: "):
        reason = reason.removeprefix(prefix)
    return f"Slurm refused the job: {reason.strip('. ')}."


def look(job: str) -> tuple[str, str]:
    """Return a job's state and, while it waits, the reason; "" and "" if Slurm does not say."""
    command = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%r"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=times.SLURM_COMMAND, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    if "Invalid job id" in done.stderr:
        return "GONE", ""
    state, _, reason = done.stdout.strip().partition("|")
    return state, reason


def trouble(job: str, log: str = "") -> str:
    """Return why the ranks of a job will not come, "" if they may; ``log`` is its output so far."""
    state, reason = look(job)
    if state == "PENDING" and reason in HOPELESS:
        return f"Slurm cannot run job {job} as it was asked for ({reason})"
    if state and state not in ALIVE:
        return f"Slurm job {job} ended before its ranks were there ({state})"
    if ended := _ENDED.search(log):
        host, what = ended.groups()
        return f"A rank of Slurm job {job} ended at start-up on {host} ({what.strip('. ')})"
    return ""


def delay(job: str) -> str:
    """Return why the ranks of a job are not there yet, "" if that is not known."""
    state, reason = look(job)
    if state != "PENDING":
        return ""
    return (
        f"Slurm job {job} waited in the queue ({reason}). To wait longer: "
        'config={"Cluster": {"engine_timeout": 3600}}'
    )
