"""What ipyparallel's own launchers are told."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from labkit import LabError
from labkit.launch import external, external_launcher, ssh


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable of any MPI is set."""
    for name in list(os.environ):
        if name.startswith(("OMPI_", "PRTE_")):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("engines", "address"), [("local", "127.0.0.1"), ("mpi", "127.0.0.1"), ("slurm", "*")]
)
def test_the_controller_is_on_loopback_unless_ranks_are_elsewhere(
    engines: str, address: str
) -> None:
    made = external.config(engines, {}, 2, "/folder")
    assert f"--ip={address}" in made.LocalControllerLauncher.controller_args


def test_the_controller_knows_whom_to_follow_whatever_the_user_adds() -> None:
    own = {"LocalControllerLauncher": {"environment": {"HINT": "1"}}}
    made = external.config("mpi", own, 2, "/folder")
    assert made.LocalControllerLauncher.environment == {
        "LABKIT_OWNER": str(os.getpid()),
        "LABKIT_FOLDER": "/folder",
        "HINT": "1",
    }


@pytest.mark.parametrize(("user", "allowed"), [(0, True), (1000, False)])
def test_mpi_may_oversubscribe_and_run_as_root_only_if_it_is_root(
    clean: pytest.MonkeyPatch, user: int, allowed: bool
) -> None:
    clean.setattr(os, "geteuid", lambda: user)
    told = external.config("mpi", {}, 2, "/folder").MPIEngineSetLauncher.environment
    assert told["OMPI_MCA_rmaps_base_oversubscribe"] == "1"
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in told) == allowed


def test_what_is_set_for_mpi_already_stays(clean: pytest.MonkeyPatch) -> None:
    name = "OMPI_MCA_hwloc_base_binding_policy"
    clean.setenv(name, "core")
    own = {"MPILauncher": {"environment": {"OMPI_MCA_rmaps_base_oversubscribe": "0"}}}
    told = external.config("mpi", own, 2, "/folder").MPIEngineSetLauncher.environment
    assert name not in told
    assert told["OMPI_MCA_rmaps_base_oversubscribe"] == "0"


def test_a_command_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    own: dict[str, Any] = {"MPILauncher": {"mpi_cmd": ["srun"]}}
    with pytest.raises(LabError, match="needs the command srun of Open MPI or MPICH, which is not"):
        external.check(2, "mpi", own)
    with pytest.raises(LabError, match='engines="ssh" needs the command ssh, which is not there'):
        external.check(2, "ssh", {"SSHEngineSetLauncher": {"engines": {"h1": 2}}})


def test_without_a_number_ssh_starts_what_the_hosts_were_given() -> None:
    hosts = {"h1": 2, "h2": {"n": 3}, "h3": {}}
    assert external.check(None, "ssh", {"SSHEngineSetLauncher": {"engines": hosts}}) == 6
    assert external.check(2, "ssh", {"SSHEngineSetLauncher": {"engines": hosts}}) == 2


def test_ssh_sends_no_file_and_runs_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ssh.Host] = []
    monkeypatch.setattr(ssh, "look", lambda hosts: asked.extend(hosts) or ["127.0.0.1"])
    own = {
        "SSHLauncher": {"ssh_args": ["-F", "file"], "environment": {"HINT": "1"}},
        "SSHEngineSetLauncher": {"engines": {"h1": 2, "h2": 2}, "remote_python": "/python"},
    }
    made = external.config("ssh", own, 2, "/folder")
    assert asked == [ssh.Host("h1", ["ssh", "-F", "file", "h1"], "/python")]  # h2 gets no rank
    assert made.SSHLauncher.ssh_args == ["-F", "file"]
    assert made.SSHEngineLauncher.to_send == []
    assert made.EngineLauncher.engine_cmd[0] == "/python"
    assert made.SSHEngineSetLauncher.environment["HINT"] == "1"
    assert "--ip=127.0.0.1" in made.LocalControllerLauncher.controller_args


def test_a_process_that_ended_is_seen_and_forgotten() -> None:
    def process(*, alive: bool) -> SimpleNamespace:
        thread = SimpleNamespace(is_alive=lambda: alive, join=lambda seconds: None)
        return SimpleNamespace(_wait_thread=thread, stop_callbacks=[print], state="running")

    launchers = {"h1/0": process(alive=True), "h2/0": process(alive=False)}
    both = SimpleNamespace(state="running", stop_data={}, launchers=launchers)
    assert external_launcher.any_ended(both)
    external_launcher.forget_ended(both, 0.0)
    assert list(launchers) == ["h1/0"]
    assert not external_launcher.any_ended(both)
