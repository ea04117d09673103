"""Code from a tutorial works as it is: its arguments, its names, the processes that it starts."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import labkit
from tests.support.cells import results, run_cell

#: A tutorial's own start of processes, and one that a started process makes.
SPAWNS = """
import torch.multiprocessing as mp
class Net:
    width = 7
def put(queue):
    queue.put(Net().width)
def work(index, file):
    spawn = mp.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=put, args=(queue,))
    process.start()
    open(file, "w").write(f"process {{index}}: {{queue.get()}}")
    process.join()
mp.spawn(work, args=({file},), nprocs=1)
"""


@pytest.fixture(scope="module")
def lab():
    with labkit.start(2) as lab:
        yield lab


def test_argparse_finds_no_arguments(lab: labkit.Lab) -> None:
    code = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.parse_args().epochs
    """
    assert results(run_cell(lab, textwrap.dedent(code))) == ["3", "3"]


def test_a_cell_that_changes_a_name_is_told_and_the_next_has_it_back(lab: labkit.Lab) -> None:
    changes = "world_size, device = 1, torch.device('meta')\nfor rank in range(5): pass"
    for outcome in run_cell(lab, changes):
        assert outcome.stderr == (
            "This cell has changed rank, world_size, device: in the next cell labkit's is back. "
            "Use another name to keep yours.\n"
        )
    assert results(run_cell(lab, "rank, world_size, device.type")) == [
        "(0, 2, 'cpu')",
        "(1, 2, 'cpu')",
    ]


def test_names_of_the_same_meaning_are_nothing_to_tell(lab: labkit.Lab) -> None:
    same = "import torch.distributed as dist\nrank, device = dist.get_rank(), 'cpu'"
    assert [outcome.stderr for outcome in run_cell(lab, same)] == ["", ""]
    assert results(run_cell(lab, "device.type")) == ["'cpu'"] * 2


def test_a_rank_that_is_a_string_is_another_one(lab: labkit.Lab) -> None:
    assert "changed world_size:" in run_cell(lab, "world_size = str(world_size)")[0].stderr


def test_a_deleted_name_is_back_too(lab: labkit.Lab) -> None:
    assert "changed rank:" in run_cell(lab, "del rank")[0].stderr
    assert results(run_cell(lab, "rank")) == ["0", "1"]


def test_names_are_kept_after_a_restart(lab: labkit.Lab) -> None:
    lab.restart(ranks=[1])
    run_cell(lab, "rank = 7")
    assert results(run_cell(lab, "rank")) == ["0", "1"]


def test_processes_have_what_cells_have_defined(lab: labkit.Lab, tmp_path: Path) -> None:
    for turn in range(2):  # a cell is run again
        run_cell(lab, SPAWNS.format(file=f"f'{tmp_path}/{turn}-{{rank}}'"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ["0-0", "0-1", "1-0", "1-1"], "process 0: 7"
    )


def test_in_a_notebook_too(tmp_path: Path) -> None:
    cell = SPAWNS.format(file=repr(str(tmp_path / "result")))
    code = f"""
    from IPython.core.interactiveshell import InteractiveShell
    import labkit
    shell = InteractiveShell.instance()
    with labkit.start(1):
        shell.run_cell({cell!r}).raise_error()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "result").read_text() == "process 0: 7"
