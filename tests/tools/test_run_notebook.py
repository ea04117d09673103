"""`labkit run`: notebooks in the terminal, good ones, failing ones, slow ones."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import NotebookNode

import labkit
from labkit.tools import run_notebook, run_progress
from tests.support.events import Marks

LABKIT = Path(sysconfig.get_path("scripts")) / "labkit"

NEVER_ENDS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
SWALLOWS = f"try:\n    {NEVER_ENDS.replace(chr(10), chr(10) + '    ')}\nexcept BaseException: pass"


class Log:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def begins(self, number: int, cell: NotebookNode) -> None:
        self.seen.append(("begins", number))

    def ended(self, number: int, cell: NotebookNode) -> None:
        self.seen.append(("ended", number))


def notebook(*sources: str, kernel: str = "python3") -> NotebookNode:
    """Make a notebook that was stored with the output of some other run."""
    old = [nbformat.v4.new_output("stream", text="old\n")]
    cells = [nbformat.v4.new_code_cell(s, execution_count=9, outputs=old) for s in sources]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    nb = nbformat.v4.new_notebook(cells=cells)
    nb.metadata.kernelspec = {"name": kernel, "display_name": kernel}
    return nb


def stored(path: Path, *sources: str) -> Path:
    nbformat.write(notebook(*sources), path)
    return path


def texts(nb: NotebookNode) -> list[str]:
    """Return what each code cell has stored, pictures by their description."""
    return ["".join(map(run_progress.output_text, c.outputs)) for c in nb.cells if "outputs" in c]


def execute(
    nb: NotebookNode, folder: Path, timeout: float | None = None
) -> tuple[run_notebook.Failure | None, Log]:
    log = Log()
    failure = run_notebook.execute(nb, folder, ranks=None, timeout=timeout, watcher=log)
    return failure, log


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(LABKIT), "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


# -- a run --------------------------------------------------------------------------------------


def test_every_cell_runs_in_the_notebooks_folder(tmp_path: Path) -> None:
    nb = notebook("import os\nx = 2", "  ", "print(os.getcwd())", "x + 1")
    nb.cells.insert(1, nbformat.v4.new_markdown_cell("text", id="text"))
    failure, log = execute(nb, tmp_path)
    assert failure is None
    assert texts(nb) == ["", "", f"{tmp_path}\n", "3"]
    assert [c.execution_count for c in nb.cells if "outputs" in c] == [1, None, 2, 3]
    assert log.seen == [(what, n) for n in (1, 2, 3) for what in ("begins", "ended")]
    assert len(run_notebook.cells_to_run(nb)) == 3


def test_nothing_of_the_day_or_the_machine_is_stored(tmp_path: Path) -> None:
    nb = notebook("print('a')\nprint('b')")
    execute(nb, tmp_path)
    assert nb.cells[0].metadata == {}
    assert "widgets" not in nb.metadata
    assert len(nb.cells[0].outputs) == 1


def test_a_failing_cell_ends_the_run(tmp_path: Path) -> None:
    nb = notebook("print('one')", "print('two')\n1 / 0", "print('three')")
    failure, log = execute(nb, tmp_path)
    assert failure is not None
    assert (failure.number, failure.interrupted) == (2, False)
    assert "ZeroDivisionError" in failure.error
    assert log.seen[-1] == ("ended", 2)
    assert texts(nb)[0] == "one\n"
    assert texts(nb)[1].startswith("two\n")
    assert texts(nb)[2] == ""  # and not the old one


def test_an_error_that_the_notebook_announces_is_none(tmp_path: Path) -> None:
    nb = notebook("1 / 0", "print('on')")
    nb.cells[0].metadata.tags = ["raises-exception"]
    failure, _ = execute(nb, tmp_path)
    assert failure is None
    assert texts(nb)[1] == "on\n"


def test_a_run_may_go_on_behind_cells_that_fail(tmp_path: Path) -> None:
    nb = notebook("1 / 0", "[][0]", "print('on')", "int('x')")
    nb.cells[1].metadata.tags = ["raises-exception"]
    failures: list[run_notebook.Failure] = []
    log = Log()
    ended = run_notebook.execute(
        nb, tmp_path, ranks=None, timeout=None, watcher=log, failed=failures.append
    )
    assert ended is None
    assert [failure.number for failure in failures] == [1, 4]
    assert "ZeroDivisionError" in failures[0].error
    assert "ValueError" in failures[1].error
    assert texts(nb)[2] == "on\n"
    assert log.seen[-1] == ("ended", 4)
    assert [cell.metadata for cell in nb.cells] == [{}, {"tags": ["raises-exception"]}, {}, {}]


def test_a_cell_that_takes_too_long(tmp_path: Path) -> None:
    nb = notebook(NEVER_ENDS)
    failure, _ = execute(nb, tmp_path, timeout=2)
    assert failure is not None
    assert failure.error == "It ran longer than 2 s (--timeout)."
    assert texts(nb)[0].startswith("begun\n")  # and where it was then, if it came to say so


def test_a_kernel_that_dies(tmp_path: Path) -> None:
    nb = notebook("import os\nos.write(2, b'out of luck\\n')\nos._exit(3)")
    failure, _ = execute(nb, tmp_path)
    assert failure is not None
    assert failure.error.startswith("The notebook's kernel ended by itself.\n")
    assert failure.error.endswith("out of luck")


def test_a_kernel_that_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(labkit.LabError, match="kernel 'julia-9' is not installed"):
        execute(notebook("1", kernel="julia-9"), tmp_path)


# -- on the command line ------------------------------------------------------------------------


RICH = """%%px
from IPython.display import HTML, display
print("before", rank)
display(HTML(f"<b>first of {rank}</b>"))
print("between")
handle = display(HTML(f"<b>second of {rank}</b>"), display_id=True)
rank"""

FIGURES = """%%px
import matplotlib.pyplot as plt
for step in range(2):
    print("step", step)
    plt.figure(figsize=(1, 1))
    plt.plot([0, rank + step])
    plt.show()"""


#: One rank's column of an output: its label, and what stands below it.
COLUMN = re.compile(r"<b [^>]*>(rank \d)</b>:</div>(.*?)</div>")


@pytest.mark.slow
def test_each_display_stands_below_the_label_of_its_rank_beside_the_others(tmp_path: Path) -> None:
    update = "%%px\nhandle.update(HTML(f'<b>updated {rank}</b>'))"
    nb = notebook("import labkit; lab = labkit.start(3)", RICH, FIGURES, update, "lab.stop()")
    failure, _ = execute(nb, tmp_path)
    assert failure is None
    _, rich, figures, *_ = nb.cells
    shown = [output.data["text/html"] for output in rich.outputs if "data" in output]
    assert [COLUMN.findall(html) for html in shown] == [
        [(f"rank {rank}", f"<b>{what} {rank}</b>") for rank in range(3)]
        for what in ("first of", "updated")
    ]
    drawn = [output.data["text/html"] for output in figures.outputs if "data" in output]
    columns = [column for html in drawn for column in COLUMN.findall(html)]
    assert [label for label, _ in columns] == [f"rank {rank}" for rank in range(3)] * 2
    # A straight line from 0: each figure looks the same, but for the numbers on its axis.
    assert columns[1][1] == columns[3][1] != columns[0][1]
    assert texts(nb)[1].startswith("\x1b[1;38;2;41;99;175mrank 0\x1b[0m:\n  before 0\n")


def test_an_update_finds_its_display_among_much_text(tmp_path: Path) -> None:
    shown = """
import sys
for name in "ab":
    print(name, flush=True)
    print(name, flush=True, file=sys.stderr)
handle = display("old", display_id=True)
print("end")"""
    nb = notebook(shown, "handle.update('new')", "1 / 0")
    failure, _ = execute(nb, tmp_path)
    assert failure is not None  # what was there before it is stored in order, too
    assert texts(nb)[:2] == ["a\nb\na\nb\n'new'end\n", ""]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["%%px --frob 2", "%%px --timeout soon"])
def test_a_line_that_px_cannot_read_ends_the_run(tmp_path: Path, line: str) -> None:
    nb = notebook("import labkit; lab = labkit.start(1)", f"{line}\n1", "print('went on')")
    failure, log = execute(nb, tmp_path)
    assert failure is not None
    assert failure.number == 2
    assert "%%px? shows what it takes." in failure.error
    assert ("begins", 3) not in log.seen


def test_the_copy_is_written_beside_and_the_notebook_left_alone(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.ipynb", "print(1)", "2")
    before = path.read_bytes()
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert "cell 2 of 2" in done.stdout
    assert f"Executed copy: {tmp_path / 'a.executed.ipynb'}\n" in done.stdout
    assert path.read_bytes() == before
    assert texts(run_notebook.read(tmp_path / "a.executed.ipynb")) == ["1\n", "2"]


def test_output_may_name_the_notebook_itself(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.ipynb", "print(1)")
    assert run(path, "--output", path).returncode == 0
    assert texts(run_notebook.read(path)) == ["1\n"]
    assert [p.name for p in tmp_path.iterdir()] == ["a.ipynb"]


def test_verbose_prints_what_cells_print(tmp_path: Path) -> None:
    path = stored(
        tmp_path / "a.ipynb", "print('x' * 200)", "import sys\nprint('[b]', file=sys.stderr)"
    )
    assert "xxx" not in run(path).stdout
    done = run(path, "--verbose")
    assert "x" * 200 + "\n" in done.stdout  # not cut to the terminal's width
    assert "\n[b]\n" in done.stdout
    assert "cell 2 of 2: import sys" in done.stdout


def test_a_failure_is_one_block_and_exit_code_1(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.ipynb", "print('one')", "import labkit\nlabkit.start(0)", "3")
    done = run(path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Cell 2 of 3 failed:",
        "    import labkit",
        "    labkit.start(0)",
        "UsageError: The number of ranks must be a whole number from 1 up, got 0.",
    ]
    partial = run_notebook.read(tmp_path / "a.executed.ipynb")
    assert texts(partial)[0] == "one\n"
    assert "UsageError" in texts(partial)[1]
    assert texts(partial)[2] == ""


@pytest.mark.slow
def test_every_failure_is_shown_by_a_run_that_keeps_going(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.ipynb", "x = 1 / 0", "print('on')", "int('y')")
    done = run(path, "--keep-going")
    assert done.returncode == 1
    assert "Cell 1 of 3 failed:" in done.stderr
    assert "Cell 3 of 3 failed:" in done.stderr
    assert texts(run_notebook.read(tmp_path / "a.executed.ipynb"))[1] == "on\n"


def test_ranks_replace_the_number_in_the_notebook(tmp_path: Path) -> None:
    path = stored(
        tmp_path / "a.ipynb",
        "import labkit\nlab = labkit.start(4)",
        "%%px\nx = torch.ones(1)\ndist.all_reduce(x)",
        "print(lab.world_size, lab['x'])",
        "lab.stop()",
    )
    done = run(path, "--ranks", 2)
    assert done.returncode == 0, done.stderr
    executed = run_notebook.read(tmp_path / "a.executed.ipynb")
    assert texts(executed)[2] == "2 [tensor([2.]), tensor([2.])]\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("source", [NEVER_ENDS, SWALLOWS], ids=["plain", "swallows"])
def test_an_interrupt_ends_the_run_and_its_processes(
    tmp_path: Path, how: signal.Signals, source: str, eventually: Callable[..., None], marks: Marks
) -> None:
    path = stored(tmp_path / "a.ipynb", f"{marks.make('0')}\n{source}", "print('next')")
    command = [str(LABKIT), "run", str(path), "--verbose"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        for line in p.stdout:
            if "cell 1 of 2" in line:
                break
        eventually(lambda: marks.count() == 1)  # it sleeps for minutes
        family = psutil.Process(p.pid).children(recursive=True)
        assert family
        os.kill(p.pid, how)
        _, errors = p.communicate(timeout=120)
    assert p.returncode == 130
    assert errors.startswith("Cell 1 of 2 was interrupted:\n")
    eventually(lambda: not any(q.is_running() for q in family))
    assert texts(run_notebook.read(tmp_path / "a.executed.ipynb"))[1] == ""


#: Says whether the lab's warm process is this kernel's own child.
WHOSE = (
    "import os, psutil, labkit\n"
    "lab = labkit.start(1)\n"
    "warm = psutil.Process(lab.run(os.getppid)[0])\n"
    "print('of my own:', warm.ppid() == os.getpid())"
)


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_labs_start_from_the_zygote_of_the_run(tmp_path: Path) -> None:
    path = stored(tmp_path / "whose.ipynb", WHOSE)
    done = subprocess.run([LABKIT, "run", "-v", path], capture_output=True, text=True, timeout=600)
    assert "of my own: False" in done.stdout, done.stdout + done.stderr
    executed = nbformat.read(tmp_path / "whose.executed.ipynb", as_version=4)
    done = subprocess.run(
        [LABKIT, "test", _store(executed, path)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout


def _store(nb: NotebookNode, path: Path) -> Path:
    nbformat.write(nb, path)
    return path
