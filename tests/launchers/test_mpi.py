"""Ranks that mpiexec starts: labkit.start(engines="mpi")."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import zmq

import labkit
from labkit import LabError, RankDied
from tests.conftest import descendants
from tests.support import external_lab
from tests.support.cells import inside, run_cell
from tests.support.events import until
from tests.support.system import needs

pytestmark = [pytest.mark.slow, needs("mpi")]


def place() -> tuple[int, int, int]:
    """Say which rank this is, for torch and for MPI, and its process."""
    import torch.distributed as dist

    told = [os.environ[n] for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if n in os.environ]
    return dist.get_rank(), int(told[0]), os.getpid()


def test_ranks_of_mpiexec_work_and_a_killed_one_is_named() -> None:
    with labkit.start(3, engines="mpi") as lab:  # more than there are cores, and as root in CI
        assert [p[:2] for p in lab.run(place)] == [(r, r) for r in range(3)]
        external_lab.check_start_of_20(lab)
        external_lab.check_questions(lab)
        with pytest.raises(RankDied) as caught:
            lab.run(external_lab.die, 2)
        assert str(caught.value).startswith("rank 2 ended with signal 9 (SIGKILL).")
        assert "lab.restart() gives you fresh ranks." in str(caught.value)
        assert [lab.status()[r].state for r in (0, 2)] == ["idle", "dead"]
        lab.restart()
        assert lab.run(external_lab.mean_of_ranks) == [2.0] * 3
        below = descendants()
    assert external_lab.alive(below) == []


def test_nothing_outlives_a_killed_kernel(tmp_path: Path) -> None:
    external_lab.check_killed_kernel("mpi", lambda mark: {}, tmp_path)


def test_an_mpiexec_that_fails_is_reported_at_once(tmp_path: Path) -> None:
    broken = tmp_path / "mpiexec"
    broken.write_text("#!/bin/sh\necho there are not enough slots >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(LabError) as caught:  # and not that ranks have not come in time
        labkit.start(2, engines="mpi", config={"MPILauncher": {"mpi_cmd": [str(broken)]}})
    assert str(caught.value).splitlines() == [
        'engines="mpi" ended at start-up before all 2 ranks were there; its log ends:',
        "there are not enough slots",
    ]
    assert descendants() == []


def test_without_mpiexec_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(LabError, match=r"needs the command mpiexec of Open MPI or MPICH, which is"):
        labkit.start(2, engines="mpi")


def test_nobody_without_the_key_reads_what_the_ranks_say() -> None:
    with labkit.start(2, engines="mpi") as lab, zmq.Context() as context:
        security = Path(inside(lab).cluster.launcher.cluster.profile_dir) / "security"
        info = json.loads((security / "ipcontroller-client.json").read_text())
        stranger, friend = context.socket(zmq.SUB), context.socket(zmq.SUB)
        friend.curve_publickey, friend.curve_secretkey = zmq.curve_keypair()
        friend.curve_serverkey = info["curve_serverkey"].encode()
        for ear in (stranger, friend):
            ear.linger = 0
            ear.subscribe(b"")
            ear.connect(f"{info['interface']}:{info['iopub']}")
        # Once the friend hears something, the stranger would too.
        until(lambda: run_cell(lab, "print('secret')") and friend.poll(100))
        run_cell(lab, "print('secret')")
        assert stranger.poll(500) == 0
        stranger.close()
        friend.close()
