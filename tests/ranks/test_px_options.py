"""The options of ``%%px``: a time limit, and lines that cannot be read."""

from __future__ import annotations

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit import RankError, UsageError
from tests.support.events import LONG


@pytest.fixture(scope="module")
def lab(shell: InteractiveShell):
    with labkit.start(2) as lab:
        yield lab


def fails(shell: InteractiveShell, text: str) -> BaseException:
    """Run a cell; return what it failed with."""
    error = shell.run_cell(text).error_in_exec
    assert error is not None
    return error


@pytest.mark.parametrize("work", [f"__import__('time').sleep({LONG})", "while True: pass"])
def test_a_cell_is_stopped_when_its_time_is_up(
    shell: InteractiveShell, lab: labkit.Lab, work: str
) -> None:
    error = fails(shell, f"%%px --timeout 0.5\nkeep = 4\nif rank:\n    {work}\n")
    assert isinstance(error, RankError)
    first, *_ = str(error).splitlines()
    assert first == "TimedOut: the cell took longer than 0.5 s (--timeout), so it was stopped."
    assert "rank 1: stopped" in str(error)
    assert re.sub(r"\x1b\[[0-9;]*m", "", error.blocks[0]) == first
    assert lab["keep"] == [4, 4]


def test_ranks_that_wait_meanwhile_are_freed(shell: InteractiveShell, lab: labkit.Lab) -> None:
    code = f"if rank:\n    dist.barrier()\nelse:\n    __import__('time').sleep({LONG})\n"
    error = fails(shell, f"%%px --timeout 0.5\n{code}")
    assert "labkit freed rank 1" in str(error)
    assert shell.run_cell("%%px --timeout 100\ndist.barrier()").success


def test_what_is_in_time_ends_as_ever(shell: InteractiveShell, lab: labkit.Lab) -> None:
    error = fails(shell, "%%px --timeout 100\nif rank: 1 / 0")
    assert str(error) == "rank 1: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%%px --timeout 0\n1", "--timeout takes a positive number of seconds, got 0."),
        ("%%px --timeout nan\n1", "--timeout takes a positive number of seconds, got nan."),
        ("%%px --timeout 3 --noblock\n1", "--timeout is for a cell that is waited for"),
        ("%%px --timeout soon\n1", "%%px: argument --timeout: invalid"),
        ("%%px --frob 2\n1", "%%px: unrecognized arguments: --frob 2"),
        ('%%px --ranks "0\n1', "%%px: No closing quotation"),
        ("%pxconfig --targets '", "%pxconfig: No closing quotation"),
        ("%%px --ranks\n1", "%%px: argument --ranks: expected one"),
        ("%pxresult --frob", "%pxresult: unrecognized arguments: --frob"),
        ("%pxconfig --frob", "%pxconfig: unrecognized arguments: --frob"),
    ],
)
def test_a_line_that_cannot_be_read_fails_its_cell(
    shell: InteractiveShell, lab: labkit.Lab, text: str, message: str
) -> None:
    error = fails(shell, text)
    assert isinstance(error, UsageError)
    assert str(error).startswith(message)


def test_a_cell_of_autopx_fails_in_the_notebook_too(
    shell: InteractiveShell, lab: labkit.Lab
) -> None:
    shell.run_cell("%autopx")
    try:
        assert isinstance(fails(shell, "if rank: 1 / 0"), RankError)
        assert isinstance(fails(shell, "exit(3)"), RankError)
        assert shell.run_cell("keep = 9").success
    finally:
        shell.run_cell("%autopx")
    assert lab["keep"] == [9, 9]
    assert shell.run_cell("1").success


def test_the_notebook_runs_a_cell_too_and_its_ranks_are_followed_as_ever(
    shell: InteractiveShell, lab: labkit.Lab
) -> None:
    assert shell.run_cell("%%px --local\nboth = 5").success
    assert shell.user_ns["both"] == 5
    assert lab["both"] == [5, 5]
    error = fails(shell, "%%px --local --timeout 100\nif globals().get('rank'): dist.barrier()")
    assert "rank 1 waits for rank 0, which has ended its cell" in str(error)


def test_a_cell_tells_how_long_each_rank_took(
    shell: InteractiveShell, lab: labkit.Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "if rank: __import__('time').sleep(0.3)\ndist.barrier()\nprint('done')"
    assert shell.run_cell(f"%%px --time\n{code}").success
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("done")
    form = r"rank (\d) +(\d+\.\d{3}) s  \(CPU (\d+\.\d{3}) s\)"
    times = [re.fullmatch(form, line) for line in lines[1:]]
    assert [time and time[1] for time in times] == ["0", "1"]
    assert all(time and float(time[2]) > 0.2 for time in times)  # the other one waits for rank 1


def test_a_cell_that_fails_tells_it_too(
    shell: InteractiveShell, lab: labkit.Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(shell, "%%px --time --ranks 1\n1 / 0")
    assert capsys.readouterr().out.splitlines()[0].startswith("rank 1 ")
    assert "--noblock" in str(fails(shell, "%%px --time --noblock\n1"))
