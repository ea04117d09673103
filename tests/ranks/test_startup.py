"""What labkit.start accepts, and what it says when it does not."""

import os
import re
import subprocess
import sys
import tempfile

import ipyparallel as ipp
import psutil
import pytest

import labkit
from labkit import LabError
from labkit.launch import launcher
from labkit.notebook import startup
from tests.conftest import descendants, fill_disk
from tests.support import fake_gpus
from tests.support.cells import results, run_cell


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((0,), {}, "The number of ranks must be a whole number from 1 up, got 0."),
        ((-1,), {}, "got -1."),
        (("four",), {}, "got 'four'."),
        ((2.0,), {}, "got 2.0."),
        ((True,), {}, "got True."),
        ((10_000,), {}, "10000 ranks are more than this machine can hold: at most"),
        ((2,), {"engines": "cloud"}, "engines must be one of"),
        ((2,), {"timeout": 0}, "timeout must be a positive number of seconds, got 0."),
        ((2,), {"timeout": "5"}, "timeout must be a positive number of seconds, got '5'."),
        ((2,), {"preload": "torchvision"}, "preload must be a list of names"),
        ((2,), {"preload": ["not a name"]}, "preload must have names of modules"),
        ((2,), {"autoreload": 2}, "autoreload must be True or False, got 2."),
        ((2,), {"preload": ["torchvision"], "engines": "mpi"}, 'preload needs engines="local"'),
        (
            (2,),
            {"config": ["ssh"], "engines": "mpi"},
            "config must have settings of launcher classes",
        ),
        ((2,), {"config": {"SSHLauncher": 3}, "engines": "ssh"}, "got {'SSHLauncher': 3}."),
        ((2,), {"config": {"SSHLauncher": {}}}, 'engines="local" reads none.'),
        ((1,), {"preload": ["no_such_module"]}, "preload: cannot import 'no_such_module'"),
    ],
)
def test_bad_arguments_are_one_sentence_and_start_nothing(args, kwargs, message):
    with pytest.raises(LabError) as caught:
        labkit.start(*args, **kwargs)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert descendants() == []


@pytest.mark.parametrize(
    "wrong", [{"n": 0}, {"engines": "cloud"}, {"timeout": 0}, {"preload": "torchvision"}]
)
def test_a_bad_argument_leaves_the_running_lab_alone(lab4, wrong):
    with pytest.raises(LabError):
        labkit.start(**wrong)
    assert lab4.run(os.getpid) == [s.pid for s in lab4.status()]


def test_labkit_ranks_replaces_the_number(monkeypatch):
    monkeypatch.setenv("LABKIT_RANKS", "3")
    assert startup.override_size(4) == 3
    monkeypatch.setenv("LABKIT_RANKS", "three")
    with pytest.raises(
        LabError, match="LABKIT_RANKS must be a whole number from 1 up, got 'three'"
    ):
        startup.override_size(4)


def test_threads_are_shared_unless_the_user_says(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert startup.thread_settings(10_000) == {"OMP_NUM_THREADS": "1"}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert startup.thread_settings(4) == {"OMP_NUM_THREADS": "7"}
    monkeypatch.setenv("OMP_NUM_THREADS", " 2, 1 ")  # OpenMP's to read
    assert startup.thread_settings(4) == {"OMP_NUM_THREADS": " 2, 1 "}
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    assert startup.thread_settings(10_000) == {"OMP_NUM_THREADS": "1"}


def test_a_driver_that_is_too_old_is_one_sentence_and_the_lab_works(monkeypatch, capsys):
    monkeypatch.setenv(fake_gpus.VARIABLE, "gpus=2 driver=12.4")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(launcher, "has_gpu", lambda: True)
    with labkit.start(preload=["tests.support.fake_gpus"]) as lab:
        (said,) = capsys.readouterr().out.splitlines()
        assert re.fullmatch(
            r"labkit: NVIDIA's driver for CUDA 12\.4 is too old for torch \S+, which needs one for "
            r"CUDA 13\.2: ranks on \S+ compute on the CPU\.",
            said,
        )
        assert repr(lab.status()).splitlines()[-1] == said.removeprefix("labkit: ")
        assert repr(lab) == "Lab (4 ranks, gloo, cpu)"
        (shown,) = set(results(run_cell(lab, "x = torch.ones(1)\ndist.all_reduce(x)\nx, device")))
        assert shown == "(tensor([4.]), device(type='cpu'))"


def test_importing_labkit_loads_nothing_heavy():
    code = (
        "import sys, labkit; print([m for m in ('torch', 'ipyparallel', 'numpy') "
        "if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A file system of its own, with room for little."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "labkit-test", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_one_sentence(small_disk):
    fill_disk(small_disk)
    with pytest.raises(LabError) as caught:
        labkit.start(2)
    assert "free some space there or point TMPDIR at a folder" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert descendants() == []


@pytest.mark.slow
def test_a_disk_that_fills_up_later_does_not_stop_the_lab(small_disk):
    def shout():
        import os

        os.write(2, b"x" * 100_000)  # past Python, into the rank's log
        return "fine"

    with labkit.start(2) as lab:
        filler = fill_disk(small_disk)
        assert lab.run(shout) == ["fine", "fine"]
        lab.restart()
        assert lab.run(lambda: 1) == [1, 1]
        filler.unlink()


@pytest.mark.slow
def test_where_fork_is_not_safe_the_original_launcher_is_used_and_said(monkeypatch, capsys):
    monkeypatch.setattr(startup, "fork_is_safe", lambda: False)

    def add_up():
        import torch
        import torch.distributed as dist

        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item(), os.getppid()

    with labkit.start(2) as lab:
        assert capsys.readouterr().out.count("\n") == 1
        first = lab.run(add_up)
        assert [value for value, _ in first] == [2.0, 2.0]
        lab["x"] = 1
        lab.restart()
        assert [value for value, _ in lab.run(add_up)] == [2.0, 2.0]
        with pytest.raises(LabError, match="There is no variable 'x'"):
            lab["x"]
    assert descendants() == []


def test_a_start_without_a_number_keeps_to_the_most_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LABKIT_MAX_RANKS", "1")
    with labkit.start() as lab:
        assert lab["world_size"] == [1]


@pytest.mark.slow
@pytest.mark.skipif(
    psutil.virtual_memory().available < 64 * startup.RANK_BYTES, reason="needs 4 GiB of memory"
)
def test_sixty_four_ranks_start():
    """About 20 s of a processor."""

    def add_up():
        import torch
        import torch.distributed as dist

        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()

    with labkit.start(64) as lab:
        assert lab.run(add_up) == [64] * 64
    assert descendants() == []


def test_a_notice_that_was_missed_is_asked_for(monkeypatch):
    """The controller tells of each rank once; a client that is not connected to its notices by
    then hears nothing of it. It has happened on a busy machine."""
    monkeypatch.setattr(ipp.Client, "_register_engine", lambda self, message: None)
    with labkit.start(2) as lab:
        assert results(run_cell(lab, "rank * 10")) == ["0", "10"]
        lab.restart(ranks=[1])
        assert results(run_cell(lab, "rank * 10")) == ["0", "10"]
