"""What another user of this machine has laid is neither run nor read, wherever labkit looks."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import labkit
from labkit import LabError, StartError
from labkit.launch import external_engine, slurm, ssh
from labkit.wire.protocol import REMOTE_FOLDER, SHARED_WORK, WORK_FOLDER
from tests.conftest import descendants
from tests.support.cells import results, run_cell
from tests.support.others import NOBODY, as_nobody, as_root, bait, open_folder, reachable
from tests.support.system import needs

#: What a lab, Python or a library could import or read if it looked into a folder.
MODULES = (
    *("labkit", "torch", "zmq", "ipyparallel", "ipykernel", "IPython", "traitlets", "numpy"),
    *("psutil", "netifaces", "cloudpickle", "matplotlib", "tornado", "jupyter_client", "orjson"),
    *("random", "json", "socket", "site", "sitecustomize", "usercustomize", "debugpy", "uvloop"),
)
SETTINGS = (
    *("ipython_config.py", "ipengine_config.py", "ipcontroller_config.py", "config.py"),
    *("ipython_kernel_config.py", "startup/00-first.py", "profile/startup/00-first.py"),
    *("profile/ipengine_config.py", "profile/ipython_config.py", "conftest.py"),
)
#: An entry point that would take the place of labkit's own launcher.
ENTRY_POINT = (
    "[ipyparallel.engine_launchers]\nlabkit = bait_launcher:Launcher\nlocal = bait_launcher:L"
)


@pytest.fixture
def place() -> Iterator[Path]:
    """Make a folder with a short name: a lab makes sockets below it."""
    folder = Path(tempfile.mkdtemp(prefix="bait-"))
    yield reachable(folder)
    shutil.rmtree(folder)


def lay(folder: Path, marker: Path) -> None:
    """Fill a folder with all that could be taken for something else; all leave a mark if run."""
    for name in (*(f"{module}.py" for module in (*MODULES, "bait_launcher")), *SETTINGS):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(bait(marker))
    info = folder / "bait-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(ENTRY_POINT)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bait\nVersion: 1.0\n")


def give_away(folder: Path) -> None:
    """Let all of a folder belong to another user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


#: Tells whether a rank has looked for any module in its working folder.
SEARCHED = """
import os, sys
[path for path in sys.path_importer_cache if os.path.realpath(path) == os.getcwd()]
"""


def nobody_searched(lab: labkit.Lab) -> bool:
    """Tell whether no rank has looked for any module in its working folder."""
    return results(run_cell(lab, SEARCHED)) == ["[]"] * lab.world_size


# -- the working folder -------------------------------------------------------------------------


@pytest.mark.parametrize("engines", ["local", pytest.param("mpi", marks=needs("mpi"))])
def test_a_lab_imports_nothing_from_a_working_folder_of_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, engines: str
) -> None:
    folder, marker = open_folder(place / "class"), place / "marker"
    lay(folder, marker)
    (folder / "mine.py").write_text("answer = 42\n")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend("")  # as in a notebook
    with labkit.start(2, engines=engines) as lab:
        assert nobody_searched(lab)
        run_cell(lab, "x = torch.ones(1); dist.all_reduce(x)")
        lab.reset()
        with pytest.raises(LabError):
            run_cell(lab, "if rank == 0:\n    dist.all_reduce(x)")
        lab.restart()
        assert nobody_searched(lab)
        assert not marker.exists()
        # What the user asks for is the user's: as in a notebook, it comes before what is installed.
        assert results(run_cell(lab, "import mine; mine.answer")) == ["42", "42"]
        assert not nobody_searched(lab)
    assert not marker.exists()
    assert sys.path[0] == ""


def test_the_path_of_the_notebook_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from labkit.launch import application, import_path

    monkeypatch.setattr(sys, "path", ["/a", "", "/b", os.getcwd(), "/c"])
    path = sys.path
    with import_path.without_working_folder():
        assert path == ["/a", "/b", "/c"]
        path.append("/d")
    assert sys.path is path
    assert path == ["/a", "", "/b", os.getcwd(), "/c", "/d"]
    with application.closed_path():
        sys.path.insert(0, "")
        sys.path.insert(0, "/e")
    assert sys.path is path
    assert path == ["/e", "/a", "", "/b", os.getcwd(), "/c", "/d"]


# -- PYTHONPATH and TMPDIR ----------------------------------------------------------------------


def refused(**arguments: str) -> str:
    """Return the one sentence of a start that is refused; nothing runs then."""
    with pytest.raises(StartError) as caught:
        labkit.start(2, **arguments)
    assert descendants() == []
    text = str(caught.value)
    assert "\n" not in text
    return text


@as_root
@pytest.mark.parametrize("how", ["open", "laid", "missing", "empty"])
def test_a_pythonpath_of_others_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    folder, marker = open_folder(place / "lib"), place / "marker"
    lay(folder, marker)
    if how == "laid":
        folder.chmod(0o755)
        give_away(folder)
    monkeypatch.chdir(folder)
    entry = {"missing": str(folder / "later"), "empty": ""}.get(how, str(folder))
    own = os.environ.get("PYTHONPATH", "/")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([own, entry]))
    text = refused()
    assert text.startswith("PYTHONPATH has an empty entry" if how == "empty" else "PYTHONPATH na")
    assert str(folder) in text
    assert not marker.exists()


@as_root
@pytest.mark.parametrize("engines", ["local", pytest.param("mpi", marks=needs("mpi"))])
def test_a_tmpdir_of_others_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, engines: str
) -> None:
    folder = open_folder(place / "tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert "is not safe from other users: everybody can write to" in refused(engines=engines)
    folder.chmod(0o1777)
    os.chown(folder, NOBODY, NOBODY)
    assert f"{folder} belongs to user" in refused(engines=engines)
    as_nobody("ln", "-s", folder, folder / "link")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "link"))
    assert "belongs to user" in refused(engines=engines)
    assert [path.name for path in folder.iterdir()] == ["link"]


def test_without_a_home_nothing_is_left_in_tmpdir(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IPYTHONDIR", "MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with labkit.start(2) as lab:
        assert lab.run(lambda: bool(__import__("matplotlib.pyplot"))) == [True, True]
        assert [path.name[:7] for path in place.iterdir()] == ["labkit-"]
    assert list(place.iterdir()) == []


# -- ranks that another launcher starts ---------------------------------------------------------

#: Commands of Slurm that run a job here and now.
SBATCH = """#!/bin/sh
for script; do :; done
setsid sh "$script" > "$(sed -n 's/^#SBATCH --output="\\(.*\\)"/\\1/p' "$script")" 2>&1 &
echo Submitted batch job 7
"""
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
"$@" & "$@" & wait
"""
SQUEUE = "#!/bin/sh\necho 'RUNNING|None'\n"
SCANCEL = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def fake_slurm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = place / "bin"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("squeue", SQUEUE)):
        (commands / name).write_text(text)
    (commands / "scancel").write_text(SCANCEL)
    for path in commands.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(commands), os.environ["PATH"]]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))


@as_root
def test_nobody_else_gets_code_into_the_ranks_of_a_job(
    place: Path, monkeypatch: pytest.MonkeyPatch, fake_slurm: None
) -> None:
    """The queue shows a job's name, from which the folder of its ranks followed."""
    marker = place / "marker"
    monkeypatch.setattr(secrets, "token_hex", lambda n=32: "ba17" * (n // 2))
    laid = Path("/tmp/labkit-ba17ba17")
    laid.mkdir()
    lay(laid, marker)
    give_away(laid)
    before = sorted(laid.rglob("*"))
    try:
        with labkit.start(2, engines="slurm") as lab:
            assert lab.run(lambda: 1) == [1, 1]
            homes = [Path(p) for p in lab.run(lambda: os.environ["IPP_PROFILE_DIR"])]
            assert laid not in {parent for home in homes for parent in home.parents}
        assert not marker.exists()
        assert sorted(laid.rglob("*")) == before
    finally:
        subprocess.run(["rm", "-r", str(laid)], check=True)


@as_root
def test_the_output_of_a_job_goes_to_no_folder_of_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, fake_slurm: None
) -> None:
    cache = open_folder(place / "cache")
    assert "labkit is not there, and everybody can make it; point XDG" in refused(engines="slurm")
    cache.chmod(0o1777)
    as_nobody("mkdir", cache / "labkit")
    assert "labkit belongs to user" in refused(engines="slurm")
    (cache / "labkit").rmdir()
    as_nobody("ln", "-s", "/etc", cache / "labkit")
    assert "is a link that was made by user" in refused(engines="slurm")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    with pytest.raises(StartError, match=r"cannot go to /proc/none/labkit \(No such file"):
        slurm.shared_folder()


def start_rank(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Start a rank as a launcher does, with a controller that nobody can reach."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "labkit.launch.external_engine", *arguments],
        env={**os.environ, "IPP_CONNECTION_INFO": "{}", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
def test_a_rank_uses_no_folder_that_somebody_else_has_laid(place: Path, mode: int) -> None:
    laid, marker = open_folder(place / "laid"), place / "marker"
    lay(laid, marker)
    laid.chmod(mode)
    give_away(laid)
    before = sorted(laid.rglob("*"))
    for arguments, environment in (
        ([f"--profile-dir={laid}"], {}),
        ([f"--ProfileDir.location={laid}/profile"], {}),
        ([], {REMOTE_FOLDER: str(laid)}),
        ([], {REMOTE_FOLDER: str(laid / "new")}),
    ):
        done = start_rank(place, *arguments, **environment)
        assert done.returncode == 1
        assert done.stderr.startswith("labkit: A rank cannot use the ")
        assert done.stderr.count("\n") == 1
        assert f"{laid} belongs to user" in done.stderr
    # A launcher names the notebook's own folder: here it is another one, so the rank makes one.
    done = start_rank(place, IPP_PROFILE_DIR=str(laid), TMPDIR=str(place))
    assert done.returncode == 1
    assert "KeyError" in done.stderr  # it got as far as the controller's address
    assert not marker.exists()
    assert sorted(laid.rglob("*")) == before
    assert [path.name for path in place.iterdir() if path.name.startswith("labkit-")] == []


@as_root
def test_a_host_where_others_could_lay_the_folder_of_ssh_is_refused(place: Path) -> None:
    """ipyparallel makes a profile there, and runs what is in it, before any rank starts."""
    open_folder(place / ".cache")
    done = subprocess.run(
        [sys.executable, "-P", "-c", ssh._CODE],
        cwd=place,  # from where ssh begins: the home
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"{place}/.cache/labkit is not safe from other users: {place}/.cache/labkit is not there, "
        "and everybody can make it\n"
    )


def test_a_rank_does_not_go_to_a_folder_of_others_that_is_called_as_the_notebook_s(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, folder = place / "start", open_folder(place / "work")
    start.mkdir()
    monkeypatch.chdir(start)
    monkeypatch.setenv(WORK_FOLDER, str(folder))
    external_engine._enter_work_folder()
    assert Path.cwd() == start
    monkeypatch.setenv(SHARED_WORK, "1")  # there the notebook's is such a one, too
    external_engine._enter_work_folder()
    assert Path.cwd() == folder
    monkeypatch.delenv(SHARED_WORK)
    folder.chmod(stat.S_IRWXU)
    monkeypatch.chdir(start)
    external_engine._enter_work_folder()
    assert Path.cwd() == folder
