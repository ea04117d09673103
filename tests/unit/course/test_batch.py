"""What sbatch reads in a script, and what the stand-ins of Slurm's commands make of their words."""

from __future__ import annotations

import getopt
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from labkit.course.exercises.nb19 import batch, fake_slurm
from labkit.course.exercises.nb19.batch import Asked, Job, Refused
from tests.support.events import until

HEAD = "#!/bin/bash\n"


def asked(*lines: str) -> Asked:
    return Asked.of(HEAD + "\n".join(lines))


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("02:00", 2),
        ("0:30", 0.5),
        ("2:00:00", 120),
        ("1-0", 1440),
        ("1-2:30", 1590),
        ("0-2:00:30", 120.5),
        ("", None),
        ("two hours", None),
    ],
)
def test_a_time_as_slurm_reads_it(text: str, minutes: float | None) -> None:
    assert batch.minutes(text) == minutes


def test_long_and_short_options() -> None:
    long = asked("#SBATCH --nodes=2 --ntasks 8", "# more", "", "#SBATCH --time=1:00:00 # an hour")
    short = asked("#SBATCH -N 2 -n8", "#SBATCH -t 60")
    for found in (long, short):
        assert (found.number("nodes", 1), found.per_node, found.minutes) == (2, 4, 60)
    assert asked().per_node == asked("#SBATCH -N3").per_node == 1
    assert asked("#SBATCH --ntasks-per-node=4 -N 2").per_node == 4


def test_lines_below_a_command_are_comments() -> None:
    found = asked("#SBATCH -N 2", "set -u", "#SBATCH -n 4", "# SBATCH -n 5", "#SBATCH -c 2")
    assert (found.options, found.ignored) == ({"nodes": "2"}, 2)


@pytest.mark.parametrize(
    ("option", "warning"),
    [
        ("B:USR1@90", ("B", 10, 90)),
        ("B:sigterm", ("B", 15, 60)),
        ("12@30", ("", 12, 30)),
        ("R:USR2@5", ("R", 12, 5)),
        ("B:NOSUCH@90", None),
    ],
)
def test_whom_slurm_warns(option: str, warning: tuple | None) -> None:
    assert asked(f"#SBATCH --signal={option}").warning == warning
    assert asked().warning is None


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#SBATCH -N 2\n", "does not look like a batch script"),
        (f"{HEAD}#SBATCH --node-count=2\n", "option --node-count not recognized"),
        (f"{HEAD}#SBATCH --nodes 2 three\n", "'three' is no option"),
        (f'{HEAD}#SBATCH --comment="open\n', "No closing quotation"),
    ],
)
def test_what_sbatch_refuses(script: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        Asked.of(script)


def test_options_end_where_the_command_begins() -> None:
    words = ["-K", "--kill-on-bad-exit=1", "-n", "2", "--label", "torchrun", "-K1", "--nodes=3"]
    options, rest = fake_slurm.read_options(words)
    assert options == {"kill-on-bad-exit": "", "ntasks": "2", "label": ""}
    assert rest == ["torchrun", "-K1", "--nodes=3"]
    with pytest.raises(getopt.GetoptError):
        fake_slurm.read_options(["--cores=2", "true"])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-[7-8]", ["gpu-7", "gpu-8"]),
        ("a[08-10,12],b", ["a08", "a09", "a10", "a12", "b"]),
        ("h1", ["h1"]),
    ],
)
def test_a_list_of_nodes(text: str, names: list[str]) -> None:
    assert fake_slurm.expanded(text) == names


SCRIPT = f"""{HEAD}#SBATCH --ntasks-per-node=2 --cpus-per-task=6
srun {sys.executable} -c 'import os
names = "SLURM_PROCID", "SLURM_LOCALID", "SLURMD_NODENAME", "LABKIT_FAKE_SLURM_CORES"
print(*map(os.environ.get, names))'
srun -N1 -n1 -c 3 hostname
scontrol show hostnames
scontrol requeue 1 || echo no
sbatch "$0"
sleep 100 &
echo $SLURM_NTASKS $SLURM_CPUS_PER_TASK $1
"""


def is_in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def test_a_job_on_two_nodes(tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_text(SCRIPT)
    job = Job(path, ["two words"], 17, ("n-3", "n-5"))
    with job.running() as shell:
        below = psutil.Process(shell.pid)
        assert shell.wait(30) == 0
        said = job.said()
        assert not job.was_requeued()
    tasks, rest = sorted(said[:4]), said[4:]
    assert tasks == ["0 0 n-3 1", "1 1 n-3 1", "2 0 n-5 1", "3 1 n-5 1"]
    assert rest == [
        "n-3", "n-3", "n-5", "scontrol: Invalid job id specified", "no",
        "sbatch: the fake Slurm has no such command", "4 6 two words",
    ]  # fmt: skip
    assert not below.is_running()
    # What the script has left in the background is gone, too.
    left = [p for p in psutil.process_iter(["status"]) if is_in_group(p.pid, shell.pid)]
    assert [p for p in left if p.info["status"] != psutil.STATUS_ZOMBIE] == []
    assert not job.folder.exists()


def test_how_torchrun_was_called(tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_text(f"{HEAD}srun -c 4 torchrun --x a.py\npython -m torch.distributed.run b.py\n")
    job = Job(path, [], 17, ("n-3", "n-5"))
    with job.running() as shell:
        assert shell.wait(30) == 0
        calls = job.calls()
    assert [(c["words"], c["SLURMD_NODENAME"], c[fake_slurm.CORES]) for c in calls] == [
        (["b.py"], "n-3", None), (["--x", "a.py"], "n-3", "4"), (["--x", "a.py"], "n-5", "4"),
    ]  # fmt: skip


def warned(tmp_path: Path, trap: str) -> list[str]:
    """Warn a job whose tasks are held, wait until it is back in the queue; return what it said."""
    path = tmp_path / "job"
    path.write_text(f"{HEAD}trap 'echo shell' TERM\ntrap '{trap}' USR1\nsrun torchrun &\nwait\n")
    job = Job(path, [], 17, ("n-3", "n-5"), mode="hold")
    with job.running() as shell:
        until(lambda: len(job.calls()) == 2)
        shell.send_signal(signal.SIGUSR1)
        until(job.was_requeued)
        return [*job.said(), *(["held"] * len(list(job.folder.glob("*.task"))))]


@pytest.mark.parametrize(
    ("scancel", "ended"),
    [("--signal=TERM 17", 15), ("-s 12 17.0", 12), ("17 -Q --signal SIGKILL", 9)],
)
def test_a_signal_reaches_the_tasks(tmp_path: Path, scancel: str, ended: int) -> None:
    trap = f"scancel {scancel}; wait $!; echo ended by $?; scontrol requeue 17"
    assert warned(tmp_path, trap) == [f"ended by {ended}"]


@pytest.mark.parametrize("option", ["--full", "-b"])
def test_a_signal_reaches_the_shell_if_that_is_asked(tmp_path: Path, option: str) -> None:
    trap = f"scancel {option} --signal=TERM 17; scontrol requeue 17"
    assert "shell" in warned(tmp_path, trap)


def test_scancel_signals_nobody_without_a_signal_or_for_another_job(tmp_path: Path) -> None:
    trap = "scancel 17; scancel --signal=TERM 18; scancel -s X 17; scontrol requeue 17"
    assert warned(tmp_path, trap) == [
        "scancel: the fake Slurm has no signal ''; --signal=TERM",
        "scancel: error: Invalid job id specified",
        "scancel: the fake Slurm has no signal 'X'; --signal=TERM",
        "held", "held",
    ]  # fmt: skip
