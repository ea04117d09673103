"""``labkit.start(engines="slurm")`` on a real Slurm, and a batch script really submitted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import labkit
from labkit import LabError
from labkit.base import times
from labkit.base.errors import Deadlock, RankDied
from labkit.launch import slurm as launcher
from tests.support import answers, external_lab, witnesses
from tests.support.alarm import alarm
from tests.support.cells import inside, run_cell
from tests.support.conda_versions import ROOT
from tests.support.events import HANG_SECONDS
from tests.support.slurm import Slurm, slurm
from tests.support.system import needs, needs_hosts

pytestmark = [pytest.mark.slow, needs("slurm"), needs_hosts(reach=True)]

SCRIPTS = ROOT / "notebooks" / "scripts"

Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm that this process, and what it starts, finds."""
    with slurm() as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield made


@pytest.fixture(scope="module")
def lab(farm: Slurm) -> Iterator[labkit.Lab]:
    """Four ranks in one job on two nodes."""
    config = {"SlurmEngineSetLauncher": {"options": "--nodes=2 --ntasks-per-node=2"}}
    with labkit.start(4, engines="slurm", timeout=120, config=config) as lab:
        yield lab


# -- what a job's ranks do ----------------------------------------------------------------------


def test_the_ranks_are_one_job_and_know_their_places(farm: Slurm, lab: labkit.Lab) -> None:
    def variables() -> list[str | None]:
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID")
        return [os.environ.get(name) for name in names]

    assert [job.split()[1] for job in farm.jobs()] == ["RUNNING"]
    assert [state.host for state in lab.status()] == ["h1", "h1", "h2", "h2"]
    assert lab.run(variables) == [[str(r), str(r % 2), "4", "2", str(r)] for r in range(4)]
    assert set(lab.run(lambda: os.environ["MASTER_ADDR"])) == {farm.network[0].address}
    assert set(lab.run(lambda: os.environ["GLOO_SOCKET_IFNAME"])) == {"eth0"}
    assert set(lab.run(os.getcwd)) == {os.getcwd()}


def test_all_reduce(lab: labkit.Lab) -> None:
    run_cell(lab, "x = torch.tensor([rank + 1.0]); dist.all_reduce(x)")
    assert [x.item() for x in lab["x"]] == [10.0] * 4


def test_a_step_of_ddp_is_the_step_of_one_process(lab: labkit.Lab) -> None:
    external_lab.check_work(lab)


def test_the_start_of_notebook_20(lab: labkit.Lab) -> None:
    external_lab.check_start_of_20(lab)
    external_lab.check_questions(lab)


def test_a_skipped_collective_is_a_deadlock_and_the_lab_goes_on(lab: labkit.Lab) -> None:
    run_cell(lab, "kept = rank")
    with pytest.raises(Deadlock) as caught:
        run_cell(lab, "x = torch.ones(1)\nif rank != 2:\n    dist.all_reduce(x)")
    assert str(caught.value).startswith("ranks 0–1, 3 wait for rank 2, which has ended its cell.")
    run_cell(lab, "x = torch.ones(1); dist.all_reduce(x)")
    assert [x.item() for x in lab["x"]] == [4.0] * 4
    assert lab["kept"] == [0, 1, 2, 3]


def test_a_killed_rank_is_named_and_a_restart_gives_fresh_ones(
    farm: Slurm, lab: labkit.Lab, eventually: Eventually
) -> None:
    with pytest.raises(RankDied, match=r"^rank 1 ended with signal 9 \(SIGKILL\)"):
        run_cell(lab, "import os\nif rank == 1:\n    os.kill(os.getpid(), 9)\ndist.barrier()")
    lab.restart()
    run_cell(lab, "x = torch.ones(1); dist.all_reduce(x)")
    assert [x.item() for x in lab["x"]] == [4.0] * 4
    eventually(lambda: len(farm.jobs()) == 1)


def test_stop_cancels_the_job_and_leaves_no_file(
    farm: Slurm, lab: labkit.Lab, eventually: Eventually
) -> None:
    assert inside(lab).cluster is not None
    folders = {Path(inside(lab).cluster.launcher.cluster.profile_dir).parent}
    folders |= set(lab.run(lambda: Path(os.environ["IPP_PROFILE_DIR"]).parent))
    assert all(folder.is_dir() for folder in folders)
    lab.stop()
    eventually(lambda: {job.split()[1] for job in farm.jobs()} <= {"COMPLETING"})
    eventually(lambda: farm.jobs() == [])
    eventually(lambda: not any(folder.exists() for folder in folders))
    assert list(Path(launcher.shared_folder()).iterdir()) == []


# -- a start that fails -------------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for ranks as long as the test does: what is said before was not said for the time."""
    monkeypatch.setattr(times, "START", 2 * HANG_SECONDS)


def fail_to_start(match: str, n: int = 2, **settings: object) -> None:
    """Start ranks without success; one sentence says why, and nobody waits for the time limit."""
    with alarm(int(HANG_SECONDS)), pytest.raises(LabError, match=match):
        labkit.start(n, engines="slurm", config={"SlurmEngineSetLauncher": settings})


@pytest.mark.usefixtures("patient")
def test_a_refused_job_is_one_sentence(farm: Slurm) -> None:
    sentence = r"^Slurm refused the job: Invalid partition name specified\.$"
    fail_to_start(sentence, queue="nope")
    fail_to_start(r"^Slurm refused the job: .*\.$", options="--no-such-option")
    assert farm.jobs() == []


@pytest.mark.usefixtures("patient")
def test_a_job_that_never_can_run_is_not_waited_for(farm: Slurm, eventually: Eventually) -> None:
    sentence = r"^Slurm cannot run job \d+ as it was asked for \(PartitionConfig\)\.$"
    fail_to_start(sentence, n=1000)
    eventually(lambda: farm.jobs() == [])


def test_a_job_that_waits_is_waited_for_within_bounds(
    farm: Slurm, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Two seconds, here: a setting of ipyparallel's prolongs it, as the sentence says."""
    monkeypatch.setattr(times, "START", 1.0)
    config = {
        "Cluster": {"engine_timeout": 2},
        "SlurmEngineSetLauncher": {"options": "--begin=now+1hour"},
    }
    sentence = r"^Only 0 of 2 ranks connected within 2 s: Slurm job \d+ waited in the queue \(Begin"
    with pytest.raises(LabError, match=sentence):
        labkit.start(2, engines="slurm", config=config)
    eventually(lambda: farm.jobs() == [])


@pytest.mark.usefixtures("patient")
def test_ranks_that_end_at_once_are_told_with_their_log(farm: Slurm) -> None:
    ended = r"^Slurm job \d+ ended before its ranks were there \(.*\)"
    sentence = ended + r"; its log ends:\n(.|\n)*nope"
    fail_to_start(sentence, engine_cmd=["/nope/python"])


@pytest.mark.usefixtures("patient")
def test_one_rank_that_ends_at_once_is_enough(farm: Slurm, eventually: Eventually) -> None:
    command = ["sh", "-c", 'test "$SLURM_PROCID" = 1 && exit 3; exec sleep 60', "rank"]
    sentence = r"^A rank of Slurm job \d+ ended at start-up on h\d \(Exited with exit code 3\); its"
    fail_to_start(sentence, engine_cmd=command)
    eventually(lambda: farm.jobs() == [])


def test_without_sbatch_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nope")
    with pytest.raises(LabError, match=r"^engines=\"slurm\" needs the command sbatch of Slurm"):
        labkit.start(2, engines="slurm")


# -- owners that are killed ---------------------------------------------------------------------

OWNER = """\
import sys
import labkit

def work(folder):
    import pathlib, time
    import torch.distributed as dist
    pathlib.Path(folder, str(dist.get_rank())).touch()
    time.sleep(1000)

options, folder = sys.argv[1:]
lab = labkit.start(2, engines="slurm", config={"SlurmEngineSetLauncher": {"options": options}})
lab.run(work, folder)
"""


@pytest.mark.parametrize(
    ("options", "state", "working"), [("--nodes=2", "RUNNING", 2), ("--hold", "PENDING", 0)]
)
def test_a_killed_owner_takes_its_job_along(
    farm: Slurm, tmp_path: Path, eventually: Eventually, options: str, state: str, working: int
) -> None:
    """Its ranks are in a cell or still to come, and its controller and files go too."""
    private, marks = tmp_path / "private", tmp_path / "marks"
    private.mkdir()
    marks.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, options, str(marks)],
        env={**os.environ, "TMPDIR": str(private)},
    ) as owner:
        try:
            eventually(lambda: len(list(marks.iterdir())) == working)
            eventually(lambda: [job.split()[1] for job in farm.jobs()] == [state])
            below = psutil.Process(owner.pid).children(recursive=True)
            assert below
            assert list(private.iterdir())
        finally:
            owner.kill()
    eventually(lambda: farm.jobs() == [])
    assert psutil.wait_procs(below, timeout=HANG_SECONDS)[1] == []
    eventually(lambda: list(private.iterdir()) == [])
    eventually(lambda: list(Path(launcher.shared_folder()).iterdir()) == [])


# -- a batch script -----------------------------------------------------------------------------

SCRIPT = """\
import os
import re
import socket
import subprocess
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
host = socket.gethostname()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {host}: {x.item()}")
if dist.get_rank() == 0:
    step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
    told = subprocess.run(["scontrol", "show", "step", step], capture_output=True, text=True).stdout
    print("cores of the step:", re.search(r"CPUs=([0-9]+)", told)[1])
dist.destroy_process_group()
"""


def test_the_batch_script_runs_torchrun_on_the_nodes_of_its_job(
    farm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    go_to(tmp_path, monkeypatch)
    # The cores of the job, on both nodes, are those of torchrun.
    farm.run("sbatch", "--cpus-per-task=6", str(SCRIPTS / "train.sbatch"), "script.py")
    eventually(lambda: farm.jobs() == [])
    (output,) = tmp_path.glob("train-*.out")
    text = output.read_text()
    lines = sorted(line for line in text.splitlines() if line.startswith("rank "))
    assert lines == [f"rank {r} of 2 on h{r + 1}: 3.0" for r in range(2)], text
    assert "cores of the step: 12" in text.splitlines()


def test_a_job_whose_time_is_almost_over_goes_on_in_its_next_run(
    farm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Slurm's signal is sent by hand: its own comes two minutes before a limit of minutes."""
    go_to(tmp_path, monkeypatch)
    raw = Path("MNIST", "raw")
    raw.mkdir(parents=True)
    for file in (ROOT / "data" / raw).glob("*ubyte"):  # 64 images: an epoch is a step
        size = 16 + 64 * 28 * 28 if "idx3" in file.name else 8 + 64
        (raw / file.name).write_bytes(file.read_bytes()[:size])
    command = [str(SCRIPTS / "train.py"), "--data=.", "--epochs=200", "--log-every=1"]
    command += ["--save=digits.pt", "--save-every=1"]
    farm.run("sbatch", "--output=out", str(SCRIPTS / "train.sbatch"), *command)
    (job,) = farm.jobs()
    assert "Requeue=1" in farm.run("scontrol", "show", "job", job.split()[0])
    eventually(Path("digits.pt").exists)
    farm.run("scancel", "--batch", "--signal=USR1", job.split()[0])
    eventually(lambda: farm.jobs() == [])
    text = Path("out").read_text()
    first, _, second = text.partition("goes back into the queue.")
    assert " 0 of 200 steps done" in first, text
    assert re.search(r" [1-9]\d* of 200 steps done", second), text
    assert re.search(r"^epoch 200: test loss", second, re.MULTILINE), text


#: Saves when it is told to end, and not before; says what it has found of the run before.
SAVER = """\
import os
import signal
import time

rank = int(os.environ["RANK"])
done = os.path.exists(f"saved-{rank}")
print(f"rank {rank} goes on: {done}\\n", end="")
told = []
signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
open(f"started-{rank}", "w").close()
while not told and not done:
    time.sleep(0.01)
open(f"saved-{rank}", "w").close()
print(f"rank {rank} has saved\\n", end="")
raise SystemExit(0 if done else 143)
"""


def test_a_job_whose_time_is_almost_over_lets_the_training_save(
    farm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    go_to(tmp_path, monkeypatch)
    Path("saver.py").write_text(SAVER)
    farm.run("sbatch", "--output=out", str(SCRIPTS / "train.sbatch"), "saver.py")
    (job,) = farm.jobs()
    eventually(lambda: all(Path(f"started-{rank}").exists() for rank in range(2)))
    farm.run("scancel", "--batch", "--signal=USR1", job.split()[0])
    eventually(lambda: farm.jobs() == [])
    text = Path("out").read_text()
    first, _, second = text.partition("goes back into the queue.")
    for part, found in ((first, False), (second, True)):
        said = sorted(re.findall(r"^rank \d .*", part, re.MULTILINE))
        words = (f"goes on: {found}", "has saved")
        assert said == [f"rank {rank} {word}" for rank in range(2) for word in words], text


def go_to(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Work in a folder, with torchrun on the PATH and one process per node."""
    patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    patch.setenv("PROCS", "1")
    patch.chdir(folder)


#: Who each process is; without torch, since eight of them share this machine's cores.
WHO = """\
import os
names = ("RANK", "WORLD_SIZE", "SLURMD_NODENAME")
print("rank {} of {} {}\\n".format(*map(os.environ.get, names)), end="")
"""


def test_the_solution_of_12_5_on_a_real_slurm(
    farm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    go_to(tmp_path, monkeypatch)
    Path("who.py").write_text(WHO)
    for name, text in answers_of("19-5").items():
        Path(name).write_text(f"{text}\n")
        farm.run("sbatch", "--cpus-per-task=4", f"--output={name}.out", name, "who.py")
    eventually(lambda: farm.jobs() == [])
    wanted = sorted(f"rank {r} of 8 h{1 + r // 4}" for r in range(8))
    for name in answers_of("19-5"):
        text = Path(f"{name}.out").read_text()
        assert sorted(x for x in text.splitlines() if x.startswith("rank ")) == wanted, text


def answers_of(name: str) -> dict[str, str]:
    """Return the two right answers to an exercise, each under the name of a file."""
    exercise = answers.EXERCISES[name]
    return {
        "solution.sbatch": answers.solution(exercise),
        "another.sbatch": answers.written(exercise, witnesses.right(exercise)),
    }
