"""What Slurm is asked for, and what its answers mean; no Slurm is needed for that."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from IPython.utils.text import EvalFormatter

from labkit.launch import external, slurm


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def script(**own: str) -> list[str]:
    """Return the lines of the script that ipyparallel would submit."""
    config = external.config("slurm", {"SlurmEngineSetLauncher": own}, 4, "/folder")
    made = config.SlurmEngineSetLauncher
    names = {"n": 4, "output_file": made.output_file, "program_and_args": "python -m rank"}
    return EvalFormatter().format(made.batch_template, **names).splitlines()


def test_the_script_starts_as_many_ranks_as_asked_for_and_none_takes_others_along() -> None:
    lines = script()
    assert "#SBATCH --ntasks=4" in lines
    assert lines[-1] == "exec srun --kill-on-bad-exit=0 --wait=0 --mpi=none python -m rank"


def test_what_the_user_asks_for_is_in_the_script() -> None:
    lines = script(queue="gpu", timelimit="1:00:00", account="a", qos="q", options="-x h[1-2]{3}")
    wanted = ["--partition=gpu", "--account=a", "--qos=q", "--time=1:00:00", "-x h[1-2]{3}"]
    assert [f"#SBATCH {option}" for option in wanted] == lines[-6:-1]


def test_a_setting_for_every_launcher_of_slurm_counts_too() -> None:
    config = external.config("slurm", {"SlurmLauncher": {"queue": "gpu"}}, 4, "/folder")
    assert "--partition=gpu" in config.SlurmEngineSetLauncher.batch_template


def test_the_users_address_of_this_machine_is_what_ranks_are_told() -> None:
    config = external.config("slurm", {"IPController": {"location": "10.0.0.1"}}, 4, "/folder")
    assert "--location=10.0.0.1" in config.LocalControllerLauncher.controller_args


@pytest.mark.parametrize(
    ("code", "output", "sentence"),
    [
        (
            1,
            b"sbatch: error: invalid partition specified: nope\n"
            b"sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "Slurm refused the job: Invalid partition name specified.",
        ),
        (2, b"", "Slurm refused the job: sbatch ended with exit code 2."),
        (124, b"", "Slurm did not answer within 60 s."),
    ],
)
def test_a_refusal_is_one_sentence(code: int, output: bytes, sentence: str) -> None:
    error = subprocess.CalledProcessError(code, ["sh", "-c", "exec sbatch"], output)
    assert slurm.refusal(error) == sentence


def test_other_errors_are_no_refusal() -> None:
    assert slurm.refusal(subprocess.CalledProcessError(1, ["mpiexec"])) == ""
    assert slurm.refusal(RuntimeError("sbatch")) == ""


@pytest.mark.parametrize(
    ("state", "reason", "trouble"),
    [
        ("RUNNING", "None", ""),
        ("PENDING", "Resources", ""),
        ("PENDING", "BadConstraints", "Slurm cannot run job 7 as it was asked for (BadCon"),
        ("FAILED", "NonZeroExitCode", "Slurm job 7 ended before its ranks were there (FAILED)"),
        ("GONE", "", "Slurm job 7 ended before its ranks were there (GONE)"),
        ("", "", ""),  # Slurm does not say
    ],
)
def test_a_job_that_cannot_start_ranks_is_recognised(
    monkeypatch: pytest.MonkeyPatch, state: str, reason: str, trouble: str
) -> None:
    monkeypatch.setattr(slurm, "look", lambda job: (state, reason))
    assert slurm.trouble("7").startswith(trouble)
    assert bool(slurm.trouble("7")) == bool(trouble)


def test_a_rank_that_has_ended_is_seen_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "look", lambda job: ("RUNNING", "None"))
    log = "Traceback …\nsrun: error: node7: task 3: Exited with exit code 1\n"
    sentence = "A rank of Slurm job 7 ended at start-up on node7 (Exited with exit code 1)"
    assert slurm.trouble("7", log) == sentence
    assert slurm.trouble("7", "srun: job 7 queued and waiting for resources\n") == ""


def test_where_there_is_no_squeue_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nope")
    assert slurm.look("7") == ("", "")
