"""A lab starts in an odd environment too, or says in one sentence what is wrong with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import labkit
from labkit.wire.processes import count_cores
from tests.conftest import descendants
from tests.support.cells import results, run_cell

#: What a notebook does, in a plain shell of IPython.
CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import labkit; lab = labkit.start(1)").raise_error()
shell.run_cell("%%px\\nprint('from', rank)").raise_error()
shell.run_cell("lab.stop()").raise_error()
"""


def run_python(
    code: str, *, options: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run some code in a Python of its own; what it prints and says is read as UTF-8."""
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**os.environ, **(variables or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )


def test_without_docstrings_the_magics_work() -> None:
    done = run_python(CELLS, options=["-OO"], variables={"PYTHONOPTIMIZE": "2"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "from 0" in done.stdout


#: Numbers of threads as OpenMP and a shell write them, and hints of a launcher that are none.
NUMBERS = {
    "OMP_NUM_THREADS": "2, 1",
    "MKL_NUM_THREADS": "",
    "LABKIT_RANKS": "",
    "LABKIT_SUSPECT_SECONDS": "",
    "TORCH_FR_BUFFER_SIZE": "",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": " ",
    "SLURM_PROCID": "",
    "OMPI_COMM_WORLD_RANK": "none",
    "WORLD_SIZE": "",
    "RANK": "first",
}


def test_numbers_in_the_environment_that_openmp_or_a_shell_allow() -> None:
    code = (
        "import labkit, torch\n"
        "with labkit.start(1) as lab:\n    print(lab.run(torch.get_num_threads))"
    )
    for threads, given in (("2, 1", [2]), ("", [count_cores()])):
        done = run_python(code, variables={**NUMBERS, "OMP_NUM_THREADS": threads})
        assert (done.returncode, done.stdout) == (0, f"{given}\n"), done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OMP_NUM_THREADS", "many"), ("LABKIT_RANKS", "²"), ("TORCH_FR_BUFFER_SIZE", "big")],
)
def test_a_number_that_is_none_is_one_sentence(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(
        labkit.LabError, match=rf"The variable {variable} must be [^\n]*{value}'\.$"
    ):
        labkit.start(1)
    assert descendants() == []


ASCII = {
    "LC_ALL": "C",
    "PYTHONIOENCODING": "ascii",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
}


def test_in_a_plain_ascii_locale_nothing_is_lost() -> None:
    code = (
        "import labkit\n"
        "lab = labkit.start(2)\n"
        "def meet():\n"
        "    import torch.distributed as dist\n"
        "    print('\\xfc', dist.get_rank())\n"
        "    if dist.get_rank(): dist.barrier()\n"
        "try: lab.run(meet)\n"
        "except labkit.Deadlock as error: print(error)\n"
        "lab.run(print, 'same')\n"
        "raise labkit.LabError('ranks 0\\u20131')"
    )
    done = run_python(code, variables=ASCII)
    assert "rank 0\x1b[0m: \\xfc 0\n" in done.stdout
    assert "rank 1 waits for rank 0, which has ended its cell." in done.stdout
    assert "ranks 0-1\x1b[0m: same\n" in done.stdout
    assert done.stderr.endswith("LabError: ranks 0-1\n")


def test_too_few_open_files_are_one_sentence() -> None:
    code = (
        "import labkit, resource\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "labkit.start(2)"
    )
    last = run_python(code).stderr.splitlines()[-1]
    assert last.startswith("labkit.StartError: A process may open 64 files here; 2 ranks ")
    assert last.endswith("ulimit -n 4096.")


def test_the_limit_of_open_files_is_as_low_as_it_may_be() -> None:
    code = (
        "import labkit, resource\nfrom labkit.launch import preconditions as p\n"
        "needed = p.FILES + 2 * p.FILES_PER_RANK\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (needed, needed))\n"
        "with labkit.start(2) as lab:\n    print(lab.run(int))"
    )
    assert run_python(code).stdout == "[0, 0]\n"


def test_without_a_loopback_interface_the_start_says_so_and_starts_nothing() -> None:
    code = "import psutil, labkit\ntry: labkit.start(2)\n"
    code += "except labkit.StartError as error: print(error, psutil.Process().children())"
    unshare = ["unshare", "-n", sys.executable, "-c", code]
    try:
        subprocess.run([*unshare[:2], "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a network namespace of its own needs root")
    done = subprocess.run(unshare, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.startswith("The ranks talk over 127.0.0.1, and no connection can be made ")
    assert done.stdout.endswith(" []\n")


#: Starts a lab of two and lets it sum.
SUM = """
import labkit
def add():
    import torch, torch.distributed as dist
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()
with labkit.start(2) as lab:
    found = lab.run(add)
"""


def test_warnings_that_are_errors_are_the_cells_own() -> None:
    code = SUM + (
        "    print(found)\n"
        "    def warn():\n        import warnings; warnings.warn('mine')\n"
        "    try: lab.run(warn)\n"
        "    except labkit.RankError as error: print('UserWarning: mine' in str(error))\n"
    )
    done = run_python(code, variables={"PYTHONWARNINGS": "error"})
    assert done.stdout == "[2.0, 2.0]\nTrue\n", done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    code = SUM + f"open({str(tmp_path / 'found')!r}, 'w').write(str(found))\n"
    code += "print('said', flush=True)\nlabkit.start(1).stop()\n"
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, (tmp_path / "found").read_text()) == (0, "[2.0, 2.0]"), done.stderr
    assert done.stdout == ("" if ">&- 2" in closed or closed == ">&-" else "said\n")


def run_with_threads(threads: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run some code as an ordinary user who may have so many threads."""
    limit = f"resource.setrlimit(resource.RLIMIT_NPROC, ({threads},) * 2)\n"
    code = f"import labkit, resource\nfrom labkit.launch import preconditions as p\n{limit}{code}"
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        drop = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
        read = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        if shutil.which("setpriv") is None:
            pytest.skip("root has no limit of threads, and there is no setpriv to drop it")
        command = [*drop, *read, *command]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "HOME": "/nonexistent"},
    )


def test_too_few_threads_are_one_sentence() -> None:
    last = run_with_threads("20", "labkit.start(2)").stderr.splitlines()[-1]
    assert last.startswith("labkit.StartError: You may have 20 threads here and have ")
    assert last.endswith("ulimit -u 4096.")


def test_the_limit_of_threads_is_as_low_as_it_may_be() -> None:
    least = "p.THREADS + 2 * p.THREADS_PER_RANK + p.count_threads()"
    done = run_with_threads(least, SUM + "    print(found)\n")
    assert done.stdout == "[2.0, 2.0]\n", done.stderr


@pytest.mark.parametrize("replaced", [False, True])
def test_a_working_folder_that_is_gone_is_one_sentence(tmp_path: Path, replaced: bool) -> None:
    """A notebook goes on in another one."""
    code = (
        "import os, sys\n"
        f"here = {str(tmp_path / 'work')!r}\n"
        "os.mkdir(here); os.chdir(here)\n"
        "import labkit\n"
        f"os.rmdir(here); {replaced} and os.mkdir(here)\n"
        "try: labkit.start(1)\n"
        "except labkit.StartError as error: print(error)\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "with labkit.start(1) as lab: print(*lab.run(os.getcwd))\n"
    )
    done = run_python(code)
    what = "was deleted, and another folder made under its name" if replaced else "was deleted"
    assert done.stdout.startswith(
        f"The working folder of this notebook is gone ({tmp_path}/work {what}). os.chdir("
    ), done.stderr
    assert done.stdout.endswith(f"\n{tmp_path}\n")


def test_where_the_ranks_folder_is_gone_cells_go_on_and_a_restart_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings of libraries name their file, which labkit shortens by that folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with labkit.start(2) as lab:
        folder.rmdir()
        run_cell(lab, "kept = 7\nimport warnings, torch.utils.data as D\nwarnings.warn('mine')")
        code = "exec(compile('warnings.warn(str(rank))', D.__file__, 'exec'))"
        for outcome in run_cell(lab, code):
            assert "torch/utils/data" in outcome.stderr
        for ranks in ([1], None):
            with pytest.raises(labkit.LabError, match=r"No fresh rank can start, because the fold"):
                lab.restart(ranks)
        assert results(run_cell(lab, "kept")) == ["7", "7"]


def test_a_limit_of_memory_that_ends_ranks_is_named() -> None:
    code = (
        "import labkit, resource\n"
        "resource.setrlimit(resource.RLIMIT_{0}, ({1}, {1}))\n"
        "try: labkit.start(1)\n"
        "except labkit.StartError as error: print(error)\n"
    )
    for name, most in (("AS", 2_000_000_000), ("DATA", 100_000_000)):
        done = run_python(code.format(name, most))
        assert "A process may have " in done.stdout, (done.stdout, done.stderr)
        assert f"ulimit -{'v' if name == 'AS' else 'd'} unlimited" in done.stdout


def test_an_interface_of_another_machine_is_one_sentence() -> None:
    code = "import labkit\nlabkit.start(1)"
    done = run_python(code, variables={"GLOO_SOCKET_IFNAME": "eth9"})
    said = done.stderr.splitlines()[-1]
    assert said.startswith("labkit.StartError: GLOO_SOCKET_IFNAME=eth9 names no network int")
