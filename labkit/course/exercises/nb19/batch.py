"""Play a small Slurm on this machine: read a batch script's requests, and run it as a job.

The job's shell is real, and so is what it starts; ``srun``, ``scancel``, ``scontrol`` and
``hostname`` are :mod:`.fake_slurm`. A job has two nodes, which are both this machine.
"""

from __future__ import annotations

import contextlib
import getopt
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ....base import times
from . import fake_slurm

#: The commands that are simulated in each job; those behind are, unless it runs for real.
SIMULATED = (
    "srun",
    "scontrol",
    "hostname",
    "sbatch",
    "salloc",
    "scancel",
    "squeue",
    "sinfo",
    "sacct",
)
RECORDED = ("torchrun", "python", "python3")
#: What of this process' environment says where somebody is in another job.
FOREIGN = ("SLURM", "SRUN_", "SBATCH_", "PET_", "TORCHELASTIC_", "TORCH_DISABLE_SHARE_RDZV")
PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "GROUP_RANK", "PROCS", "BASH_ENV")  # fmt: skip


class Said(str):
    """What was found, in words: it is shown without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


class Refused(Exception):
    """Say why sbatch does not take a script."""


@dataclass(frozen=True)
class Asked:
    """What the #SBATCH lines of a script ask for, by the long names of the options."""

    options: dict[str, str]
    ignored: int  #: lines that stand below a command, where sbatch reads no more

    @classmethod
    def of(cls, script: str) -> Asked:
        """Read a script as sbatch does.

        Raises
        ------
        Refused
            If sbatch would.
        """
        lines = script.split("\n")
        if not lines[0].startswith("#!"):
            raise Refused(
                "This does not look like a batch script: its first line is not #!/bin/bash"
            )
        read: list[str] = []
        ignored, below = 0, False
        for line in lines[1:]:
            if not line.startswith("#SBATCH"):
                below = below or bool(line.strip() and not line.lstrip().startswith("#"))
            elif below:
                ignored += 1
            else:
                read.append(line.removeprefix("#SBATCH"))
        try:
            words = [word for line in read for word in shlex.split(line, comments=True)]
            options, rest = fake_slurm.read_options(words)
        except (getopt.GetoptError, ValueError) as error:
            raise Refused(f"sbatch: {error}") from None
        if rest:
            raise Refused(f"sbatch: {rest[0]!r} is no option")
        return cls(options, ignored)

    def number(self, name: str, otherwise: int) -> int:
        """Return the number that an option asks for."""
        text = self.options.get(name, "")
        return int(text) if text.isdigit() else otherwise

    @property
    def per_node(self) -> int:
        """Tasks per node."""
        nodes = self.number("nodes", 1)
        return self.number("ntasks-per-node", -(-self.number("ntasks", nodes) // nodes))

    @property
    def minutes(self) -> float | None:
        """The time limit."""
        return minutes(self.options.get("time", ""))

    @property
    def warning(self) -> tuple[str, int, int] | None:
        """Whom Slurm warns ("B": the batch shell), by which signal, how many seconds before."""
        found = re.fullmatch(r"(?:([RB]+):)?(\w+)(?:@(\d+))?", self.options.get("signal", ""))
        if not found:
            return None
        name = found[2].upper().removeprefix("SIG")
        with contextlib.suppress(KeyError, ValueError):
            number = signal.Signals(int(name)) if name.isdigit() else signal.Signals[f"SIG{name}"]
            return found[1] or "", int(number), int(found[3] or 60)
        return None


def minutes(text: str) -> float | None:
    """Read a time as Slurm does: "90" and "90:00" are minutes, "1:30:00" hours, "1-0" days.

    >>> minutes("02:00"), minutes("2:00:00"), minutes("1-0"), minutes("")
    (2.0, 120.0, 1440.0, None)
    """
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return None
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minute, second = (*parts, 0, 0)[:3]
        return (int(days) * 24 + hours) * 60 + minute + second / 60
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + parts[2] / 60
    return parts[0] + (parts[1] / 60 if len(parts) == 2 else 0)


@dataclass
class Job:
    """One run of a batch script.

    Parameters
    ----------
    script
        The learner's file.
    words
        The arguments of the script.
    number
        The job's.
    nodes
        The names of its nodes.
    mode
        "record": torchrun only writes down how it was called; "hold": it does not end after that;
        "real": it is torchrun itself.
    restart
        How often the job was in the queue again.
    """

    script: Path
    words: Sequence[str]
    number: int
    nodes: Sequence[str]
    mode: str = "record"
    restart: int = 0
    folder: Path = field(init=False)
    asked: Asked = field(init=False)

    def __post_init__(self) -> None:
        self.asked = Asked.of(self.script.read_text(encoding="utf-8"))

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run it; at the end of the context nothing of it is left but what it has told."""
        with tempfile.TemporaryDirectory(prefix="labkit-", ignore_cleanup_errors=True) as name:
            self.folder = Path(name)
            self._make_commands()
            job = {"id": self.number, "nodes": list(self.nodes), "mode": self.mode}
            (self.folder / "job.json").write_text(
                json.dumps({**job, "options": self.asked.options})
            )
            (self.folder / "work").mkdir()
            with open(self.folder / "out", "wb") as out:
                process = subprocess.Popen(
                    ["bash", str(self.script.resolve()), *self.words],
                    env=self._environment(),
                    cwd=self.folder / "work",
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            try:
                yield process
            finally:
                kill(process)

    def _make_commands(self) -> None:
        """Put the fake commands where the shell finds them first."""
        (self.folder / "bin").mkdir()
        for name in (*SIMULATED, *(RECORDED if self.mode != "real" else ())):
            path = self.folder / "bin" / name
            run = shlex.join([sys.executable, "-I", "-S", fake_slurm.__file__, name])
            path.write_text(f'#!/bin/sh\nexec {run} "$@"\n')
            path.chmod(0o700)

    def _environment(self) -> dict[str, str]:
        """Return what Slurm sets for the batch shell, which is on the first node."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and k not in PLACES}
        path = [str(self.folder / "bin"), os.path.dirname(sys.executable)]
        own["PATH"] = os.pathsep.join([*path, own.get("PATH", os.defpath)])
        head, tails = self.nodes[0].rpartition("-")[0], [n.rpartition("-")[2] for n in self.nodes]
        names = f"{head}-[{','.join(tails)}]" if len(tails) > 1 else self.nodes[0]
        own |= {
            fake_slurm.FOLDER: str(self.folder),
            "SLURM_JOB_ID": str(self.number),
            "SLURM_JOBID": str(self.number),
            "SLURM_JOB_NAME": self.asked.options.get("job-name", self.script.name),
            "SLURM_JOB_NODELIST": names,
            "SLURM_NODELIST": names,
            "SLURM_JOB_NUM_NODES": str(len(self.nodes)),
            "SLURM_NNODES": str(len(self.nodes)),
            "SLURM_SUBMIT_DIR": str(self.folder / "work"),
            "SLURM_SUBMIT_HOST": "login-1",
            "SLURMD_NODENAME": self.nodes[0],
            "SLURM_NODEID": "0",
            "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0",
            # As it is on a node of its own: all agents and their processes are on this machine.
            "OMP_NUM_THREADS": "1",
        }
        if self.mode == "real":
            own["PET_LOCAL_ADDR"] = "localhost"
        if "ntasks" in self.asked.options or "ntasks-per-node" in self.asked.options:
            own["SLURM_NTASKS"] = str(self.asked.per_node * len(self.nodes))
        for option in ("cpus-per-task", "ntasks-per-node"):
            if option in self.asked.options:
                own[f"SLURM_{option.upper().replace('-', '_')}"] = self.asked.options[option]
        if self.restart:
            own["SLURM_RESTART_COUNT"] = str(self.restart)
        return own

    def calls(self) -> list[dict[str, Any]]:
        """Return how torchrun was called so far: by the batch shell, then by node."""
        told = [json.loads(path.read_text()) for path in self.folder.glob("*.call")]
        by = (fake_slurm.CORES, "SLURMD_NODENAME", "SLURM_LOCALID")
        return sorted(told, key=lambda call: [call[name] or "" for name in by])

    def said(self) -> list[str]:
        """Return what the job has printed."""
        return (self.folder / "out").read_text(errors="replace").splitlines()

    def was_requeued(self) -> bool:
        """Return whether the script has put its job back into the queue."""
        return (self.folder / "requeued").exists()


def wait_until(condition: Callable[[], object], seconds: float) -> bool:
    """Wait until something is true; return whether it is."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(times.BATCH_LOOK)
    return True


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a job's shell and all that it has started."""
    while True:
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(process.pid).children(recursive=True)
        # First what would start more; a process whose parent is gone is not found any more.
        for one in found:
            with contextlib.suppress(psutil.Error):
                one.suspend()
        if not found:
            break
        for one in found:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(found, timeout=times.BATCH_KILLED.seconds())
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # A signal takes effect when the process is next given a core.
    wait_until(lambda: not _is_running(process.pid), times.BATCH_KILLED.seconds())


def _is_running(group: int) -> bool:
    """Return whether a process of the group still runs."""
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
