"""%%torchrun and %torchrun: the real torchrun, in a real IPython shell."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell
from torch.distributed import run as torchrun

import labkit
from labkit.base.errors import Interrupted, LabError, RankDied, UsageError
from labkit.launch import zygote_client
from labkit.launch.zygote_client import Zygote
from tests.bench.child import is_alive
from tests.support.alarm import alarm
from tests.support.events import HANG_SECONDS, once, press_stop
from tests.support.zygotes import started

pytestmark = pytest.mark.slow

#: What a cell or a line wrote to stdout and stderr, without colours.
Run = Callable[..., tuple[str, str]]
TWO, FOUR = "--standalone --nproc-per-node=2", "--standalone --nproc-per-node=4"
PLAIN = "import os, sys, time\nrank = int(os.environ['RANK'])\n"
GROUP = (
    "import torch\nimport torch.distributed as dist\n"
    "dist.init_process_group('gloo')\nrank = dist.get_rank()\n"
)


@pytest.fixture(scope="module", autouse=True)
def zygote() -> Iterator[Zygote]:
    """What has imported torch: torchrun and its workers are forked from there."""
    with pytest.MonkeyPatch.context() as patch, started(patch) as one:
        yield one


@pytest.fixture(autouse=True, params=["forked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the processes come to be: forked, or started as in a terminal."""
    if request.param == "started":
        monkeypatch.delenv(zygote_client.VARIABLE)
    return request.param


both_ways = pytest.mark.parametrize("way", ["forked", "started"], indirect=True)


@pytest.fixture(scope="module")
def shell(shell: InteractiveShell) -> InteractiveShell:
    """Return a shell with the magics, as ``%load_ext labkit`` gives them."""
    labkit.load_ipython_extension(shell)
    return shell


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def cell(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a cell's text; return what is shown, also where the cell fails."""

    def run(text: str, line: str = TWO, error: type[BaseException] | None = None) -> tuple:
        capsys.readouterr()
        if error is None:
            shell.run_cell_magic("torchrun", line, text)
            return tuple(map(plain, capsys.readouterr()))
        with pytest.raises(error) as caught:
            shell.run_cell_magic("torchrun", line, text)
        return (*map(plain, capsys.readouterr()), str(caught.value))

    return run


@pytest.fixture
def line(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Run a line; return what it wrote to stdout."""

    def run(text: str) -> str:
        capsys.readouterr()
        shell.run_line_magic("torchrun", text)
        return plain(capsys.readouterr().out)

    return run


@pytest.fixture(autouse=True)
def _nothing_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fail a test after which a process of torchrun's, or a file, is there."""
    tmp_path_factory.getbasetemp()  # pytest's own folder is not to be in there
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield
        monkeypatch.undo()
        assert running() == []
        assert list(Path(folder).iterdir()) == []


def running() -> list[list[str]]:
    """List the names and command lines of what ``%%torchrun`` has started below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = [process.name(), *process.cmdline()]
            if any("torchrun" in word or word == AGENT for word in words):
                found.append(words)
    return found


#: What torchrun calls itself in the list of processes.
AGENT = "pt_elastic"
SUM = GROUP + (
    "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\nprint(x)\nprint(f'rank {rank}')\n"
    "dist.destroy_process_group()\n"
)


@both_ways
def test_equal_outputs_share_a_block_and_a_second_run_gives_the_same_text(cell):
    first = cell(SUM)
    assert first == (
        "rank 0:\n  tensor([3.])\n  rank 0\nrank 1:\n  tensor([3.])\n  rank 1\n",
        "",
    )
    assert cell(SUM) == first


@both_ways
def test_all_that_listens_does_so_on_loopback_and_cores_are_shared(cell):
    ports = (
        "import psutil\n"
        "above = psutil.Process().parent()\n"
        "found = [c for p in (above, *above.children()) for c in p.net_connections('inet')\n"
        "         if c.status == psutil.CONN_LISTEN]\n"
        "print(len(found) > 1, {c.laddr.ip for c in found} <= {'127.0.0.1', '::1'})\n"
        "print(os.environ['MASTER_ADDR'], os.environ['GLOO_SOCKET_IFNAME'])\n"
        "print(int(os.environ['OMP_NUM_THREADS']) == max(1, len(os.sched_getaffinity(0)) // 2))\n"
        "dist.barrier()\ndist.destroy_process_group()\n"
    )
    env = {name: os.environ.pop(name) for name in ("OMP_NUM_THREADS",) if name in os.environ}
    try:
        out, _ = cell("import os\n" + GROUP + "dist.barrier()\n" + ports)
    finally:
        os.environ.update(env)
    assert out == "ranks 0–1:\n  True True\n  127.0.0.1 lo\n  True\n"


FAULTS = {
    "exception": ("raise ValueError('bad')", "exit code 1 (ValueError: bad)"),
    "exit": ("sys.exit(3)", "exit code 3"),
    "kill": ("os.kill(os.getpid(), 9)", "signal 9 (SIGKILL)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_worker_that_fails_is_named_once_and_what_follows_from_it_is_not(cell, fault):
    code, how = FAULTS[fault]
    text = f"{GROUP}import os, sys; dist.barrier()\nif rank == 1:\n    {code}\ndist.barrier()\n"
    out, err, error = cell(text, error=RankDied)
    assert error == f"rank 1 ended with {how}."
    assert out == ""
    if fault == "exception":
        assert err == (
            "rank 1:\n  Traceback (most recent call last):\n"
            '    File "In[0]", line 8, in <module>\n'
            "      raise ValueError('bad')\n  ValueError: bad\n"
        )
    else:
        assert err == ""


@both_ways
def test_the_same_error_on_all_ranks_is_shown_once(cell):
    # torchrun ends the others when it sees that one has failed, which one of them may be slow to.
    together = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ndist.barrier()\n"
    _, err, error = cell(GROUP + together + "print(y)\n", error=RankDied)
    assert error == "ranks 0–1 ended with exit code 1 (NameError: name 'y' is not defined)."
    assert err.count("Traceback") == 1
    assert f'File "In[0]", line {(GROUP + together).count(chr(10)) + 2}, in <module>' in err


@both_ways
def test_a_failure_that_a_restart_mends_is_none(cell):
    text = PLAIN + (
        "attempt = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "print('attempt', attempt)\n"
        "if attempt == '0' and rank == 1:\n    raise OSError('once')\n"
        "time.sleep(0 if attempt == '1' else 60)\n"
    )
    out, err = cell(text, f"{TWO} --max-restarts=1")
    assert out == "ranks 0–1:\n  attempt 0\n  attempt 1\n"
    assert err.count("OSError: once") == 1


@both_ways
def test_prints_without_an_end_and_much_output_are_whole(cell):
    out, err = cell(
        PLAIN + "print('a', end='')\nprint('b', end='', flush=True)\nos.write(1, b'c')\n"
        "sys.stderr.write(f'warned {rank}')\n"
    )
    assert out == "ranks 0–1: abc\n"
    assert err == "rank 0: warned 0\nrank 1: warned 1\n"
    out, _ = cell(PLAIN + "for i in range(50_000):\n    print(i, 'x' * 60)\n")
    assert len(out.splitlines()) == 50_001
    assert out.rstrip().endswith("49999 " + "x" * 60)


@both_ways
def test_a_cell_imports_and_reads_from_the_notebooks_folder(cell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("neighbour.py").write_text("VALUE = 7\n")
    out, _ = cell(
        "import multiprocessing, os, sys\n"
        "from neighbour import VALUE\n"
        "def double(x):\n    return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    print(VALUE, open('neighbour.py').read().strip(), sys.argv[1:])\n"
        "    print(open(__file__).read().count('double'), 'PYTHONSAFEPATH' in os.environ)\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [VALUE]))\n",
        "--nproc-per-node=1 -- --epochs 3",
    )
    assert out == "rank 0:\n  7 VALUE = 7 ['--epochs', '3']\n  3 False\n  [14]\n"


@both_ways
def test_a_line_runs_a_script_as_a_terminal_does(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    Path("scripts/near.py").write_text("WORD = 'near'\n")
    Path("scripts/hello.py").write_text(
        "import sys\nfrom near import WORD\nprint(WORD, __file__, sys.argv)\n"
    )
    out = line("--nproc-per-node=2 scripts/hello.py --lr '0.1 0.2'")
    assert out == ("ranks 0–1: near scripts/hello.py ['scripts/hello.py', '--lr', '0.1 0.2']\n")
    assert line("--nproc-per-node 2 --no-python echo Hello") == "ranks 0–1: Hello\n"
    # Asked for torchrun's own way:
    assert "[default1]:near" in line("--nproc-per-node=2 --tee 3 scripts/hello.py")


def test_a_wrong_command_line_gives_one_sentence(line):
    with pytest.raises(UsageError, match=r"there is no file no/such\.py") as caught:
        line("--nproc-per-node=2 no/such.py")
    assert "\n" not in str(caught.value)


@both_ways
def test_an_error_of_torchrun_itself_is_told(line, tmp_path):
    (tmp_path / "x.py").write_text("")
    with pytest.raises(LabError, match=r"torchrun ended with exit code 1: .*backend 'nothing'"):
        line(f"--rdzv-backend=nothing {tmp_path}/x.py")


#: Lets torchrun wait for its workers when it ends them; an older one has 30 s of its own.
WAITS = (
    "--shutdown-timeout=1000"
    if "--shutdown-timeout" in torchrun.get_args_parser().format_help()
    else ""
)


@both_ways
def test_the_stop_button_ends_all_of_it_and_waits_for_no_worker(cell, marks):
    """torchrun itself would wait for these, which ignore its signal, until it kills them."""
    waits = PLAIN + (
        "import subprocess, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        f"print('waits', flush=True)\n{marks.make()}\ntime.sleep(1000)\n"
    )
    with once(lambda: marks.count() == 2, press_stop), alarm(int(HANG_SECONDS)):
        out, _, error = cell(waits, f"{TWO} {WAITS}", error=Interrupted)
    assert out == "ranks 0–1: waits\n"
    assert error.startswith("torchrun was stopped")
    assert [p for p in psutil.Process().children(recursive=True) if p.name() == "sleep"] == []


KERNEL = """\
from IPython.core.interactiveshell import InteractiveShell
import labkit
shell = InteractiveShell.instance()
labkit.load_ipython_extension(shell)
shell.run_cell_magic("torchrun", "--standalone --nproc-per-node=2", '''
import os, subprocess, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(f"{os.environ['LABKIT_PIDS']}/{os.environ['RANK']}", "w") as file:
    file.write(f"{os.getppid()} {os.getpid()} {child.pid}.")
time.sleep(1000)
''')
"""


@both_ways
@pytest.mark.parametrize("victim", ["kernel", "owner", "torchrun"])
def test_nothing_is_left_when_the_kernel_is_killed(tmp_path, eventually, victim, way):
    env = {**os.environ, "LABKIT_PIDS": str(tmp_path)}
    kernel = subprocess.Popen([sys.executable, "-c", KERNEL], env=env)
    try:
        ready = [tmp_path / "0", tmp_path / "1"]
        eventually(lambda: all(p.exists() and p.read_text().endswith(".") for p in ready))
        pids = {int(pid) for path in ready for pid in path.read_text().rstrip(".").split()}
        below = psutil.Process(int(ready[0].read_text().split()[0]))  # the workers' parent
        if way == "forked":
            owner, (torchrun,) = below, [p for p in below.children() if p.name() == AGENT]
        else:
            owner, torchrun = below.parent(), below
        pids |= {owner.pid, torchrun.pid}
        assert len(pids) == 6
        os.kill(
            {"kernel": kernel, "owner": owner, "torchrun": torchrun}[victim].pid, signal.SIGKILL
        )
        if victim == "owner":  # nobody is there then who could know of what workers have started
            for pid in (p for p in list(pids) if name_of(p) == "sleep"):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, pids)))
        if victim != "kernel":
            kernel.wait(HANG_SECONDS)  # it tells of it and ends
    finally:
        kernel.kill()
        kernel.wait()


def name_of(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


def test_beside_a_lab(shell, cell):
    with labkit.start(2) as lab:
        out, _ = cell(SUM.replace("print(f'rank {rank}')\n", ""))
        assert out == "ranks 0–1: tensor([3.])\n"
        assert lab.run(lambda: 6 * 7) == [42, 42]


# -- what a forked worker is --------------------------------------------------------------------

#: What a script finds of its process.
FACTS = """
import gc, io, json, locale, logging, os, signal, sys, tempfile, threading, warnings
import multiprocessing, resource, socket
import torch, torch.distributed as dist
signals = {n: str(signal.getsignal(n)) for n in sorted(signal.Signals)}
facts = {
    "argv": sys.argv, "path": sys.path, "flags": str(sys.flags), "main": __name__,
    "file": __file__, "folder": os.getcwd(), "umask": os.umask(0o022), "signals": signals,
    "variables": sorted(n for n in os.environ if n != "LABKIT_ZYGOTE"),
    "streams": [(type(s.buffer).__name__, s.encoding, s.errors, s.write_through, s.line_buffering,
                 s.isatty(), s.fileno()) for s in (sys.stdout, sys.stderr)],
    "stdin": sys.stdin.read(), "temporary": tempfile.gettempdir(),
    "own session": os.getsid(0) == os.getpid(), "threads": torch.get_num_threads(),
    "between": torch.get_num_interop_threads(), "dtype": str(torch.get_default_dtype()),
    "gradients": torch.is_grad_enabled(),
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE), "collector": gc.isenabled(),
    "level": logging.getLogger().level, "handlers": len(logging.getLogger().handlers),
    "recursion": sys.getrecursionlimit(), "start": multiprocessing.get_start_method(),
    "group": dist.is_initialized(), "elastic": dist.is_torchelastic_launched(),
    "timeout": socket.getdefaulttimeout(), "hook": sys.excepthook.__qualname__,
    "files": sorted(f for f in map(int, os.listdir("/proc/self/fd")) if f < 3),
    "dead": torch.cuda.is_initialized(), "locale": locale.setlocale(locale.LC_ALL),
    "cores": sorted(os.sched_getaffinity(0)), "nice": os.nice(0),
}
print(json.dumps(facts, indent=1, default=str))
"""


def test_a_forked_worker_finds_what_one_that_is_started_finds(cell, monkeypatch):
    forked, _ = cell(FACTS)
    monkeypatch.delenv(zygote_client.VARIABLE)
    started, _ = cell(FACTS)
    assert forked == started


def test_it_is_forked(cell, zygote):
    text = (
        "import os, psutil\nprint(psutil.Process().parent().name(), psutil.Process().name())\n"
        "above = psutil.Process().parent()\n"
        "print(above.ppid(), sorted(p.name() for p in above.children()))\n"
    )
    out, _ = cell(text, "--standalone --nproc-per-node=1")
    assert out.split("\n")[1:3] == [
        "  torchrun-owner torchrun-0",
        f"  {zygote.process.pid} ['{AGENT}', 'torchrun-0']",
    ]


def test_forked_workers_draw_other_numbers(cell):
    text = (
        "import random\nimport numpy, torch\n"
        "print(f'{random.random():.9f} {numpy.random.rand():.9f} {torch.rand(1).item():.9f}')\n"
    )
    out, _ = cell(text, FOUR)
    drawn = re.findall(r"0\.\d+", out)
    assert len(drawn) == len(set(drawn)) == 12


@both_ways
@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("sys.exit()", ""),
        ("sys.exit(0)", ""),
        ("sys.exit(7)", "exit code 7"),
        ("sys.exit('said')", "exit code 1"),
        ("raise KeyboardInterrupt", "signal 2 (SIGINT) (KeyboardInterrupt)"),
    ],
)
def test_exit_handlers_and_threads_end_before_it(cell, end, how):
    text = (
        "import atexit, sys, threading, time\n"
        "atexit.register(print, 'handler')\n"
        "def late():\n    time.sleep(0.2)\n    print('thread')\n"
        f"threading.Thread(target=late).start()\n{end}\n"
    )
    one = "--standalone --nproc-per-node=1"
    if how:
        out, err, error = cell(text, one, error=RankDied)
        assert error == f"rank 0 ended with {how}."
    else:
        out, err = cell(text, one)
    assert out == "rank 0:\n  thread\n  handler\n"
    assert "nanobind" not in err
    assert ("said" in err) == ("said" in end)


def test_the_level_of_torchs_log_is_the_workers(cell, monkeypatch):
    text = (
        "import psutil, torch.distributed as dist\nfrom datetime import timedelta\n"
        "try:\n    dist.TCPStore('127.0.0.1', 1, timeout=timedelta(seconds=1))\n"
        "except Exception:\n    print(psutil.Process().name().startswith('torchrun'))\n"
    )
    one = "--standalone --nproc-per-node=1"
    assert "socket" in cell(text, one)[1]
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "FATAL")
    assert cell(text, one) == ("rank 0: True\n", "")


def test_a_variable_that_torch_may_have_read_is_not_overlooked(cell, monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    text = (
        "import psutil, torch.distributed as dist\n"
        "print(dist.get_debug_level(), psutil.Process().name().startswith('python'))\n"
    )
    out, _ = cell(text)
    assert out == "ranks 0–1: DebugLevel.DETAIL True\n"
