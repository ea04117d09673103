"""A command line of ``%%torchrun``, read with torchrun's own parser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labkit.rank.torchrun import agent, worker
from labkit.rank.torchrun.agent import Refused

NO_CELL = Path("no/such/cell.py")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "cell.py"
    path.write_text("")
    return path


def test_a_line_has_options_a_script_and_its_arguments(script: Path) -> None:
    words = ["--nproc-per-node", "3", str(script), "--epochs", "2"]
    args = agent.read(words, NO_CELL)
    assert (args.nproc_per_node, args.training_script) == ("3", str(script))
    assert args.training_script_args == ["--epochs", "2"]


def test_a_cell_is_the_script_and_its_arguments_stand_behind_two_dashes(script: Path) -> None:
    args = agent.read(["--standalone", "--", "--epochs", "2", "--"], script)
    assert args.training_script == str(script)
    assert args.training_script_args == ["--epochs", "2", "--"]
    assert agent.read([], script).training_script_args == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "the script to run is missing"),
        (["--nproc-per-node"], "expected one argument"),
        (["--wrong", "x.py"], "unrecognized arguments: --wrong"),
        (["no.py"], "there is no file no.py"),
        (["--nproc-per-node=two", __file__], "two"),
        (["--nproc-per-node=0", __file__], "is no number of workers"),
        (["--nnodes=2:1", __file__], "is no number of nodes"),
        (["--max-restarts=x", __file__], "argument --max-restarts/--max_restarts: invalid int"),
    ],
)
def test_what_torchrun_cannot_run_is_refused_in_one_sentence(
    words: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refused, match=re.escape(reason)) as caught:
        agent.read(words, NO_CELL)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_cell_beside_a_script_is_refused(script: Path) -> None:
    with pytest.raises(Refused, match=r"the script is the cell itself, so 'train\.py' cannot be"):
        agent.read(["--nproc-per-node=2", "train.py"], script)


def test_help_is_torchruns_own(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        agent.read(["--help"], NO_CELL)
    assert left.value.code == 0
    assert "--nproc-per-node" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("option", "own"),
    [("--max-restarts=1", False), ("--tee=3", True), ("-r3", True), ("--log-dir=x", True)],
)
def test_who_says_where_output_goes(option: str, own: bool) -> None:
    assert agent.logs_its_own_way(agent.read([option, __file__], NO_CELL)) is own


def test_a_program_that_is_no_script_of_python_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent.guard, "install_loopback", lambda: None)
    monkeypatch.setattr(agent.logging, "disable", lambda level: None)
    args = agent.read(["--no-python", "echo", "Hello"], NO_CELL)
    agent.prepare(args, tmp_path)
    assert (args.training_script, args.training_script_args) == ("echo", ["Hello"])
    assert (args.redirects, args.local_addr) == ("3", "127.0.0.1")
    args = agent.read([__file__, "x"], NO_CELL)
    agent.prepare(args, tmp_path)
    assert args.module
    assert args.training_script == worker.__name__
    assert args.training_script_args[1:] == [
        worker.KEEP,
        str(tmp_path / "watch"),
        "",
        __file__,
        "x",
    ]


def test_a_cell_has_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent.guard, "install_loopback", lambda: None)
    monkeypatch.setattr(agent.logging, "disable", lambda level: None)
    monkeypatch.setenv("LABKIT_CELL", "In[7]")
    args = agent.read(["--tee=3"], script)
    agent.prepare(args, script.parent)
    assert args.training_script_args[1:] == [
        worker.PRINT,
        str(script.parent / "watch"),
        "In[7]",
        str(script),
    ]
    assert "LABKIT_CELL" not in agent.os.environ


def test_several_nodes_keep_their_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError

    monkeypatch.setattr(agent.guard, "install_loopback", fail)
    monkeypatch.setattr(agent.logging, "disable", lambda level: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    args = agent.read(["--nnodes=2", __file__], NO_CELL)
    agent.prepare(args, tmp_path)
    assert args.local_addr is None
    assert agent.os.environ["OMP_NUM_THREADS"] == "3"
