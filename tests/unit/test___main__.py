"""The command line: what it accepts, what it says, and how it exits."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner, Result

import labkit
from labkit.__main__ import app
from labkit.base import versions
from labkit.course import material
from labkit.launch import zygote_client
from labkit.tools import environment
from labkit.tools.doctor import examine
from labkit.tools.doctor.software import Finding

LABKIT = Path(sysconfig.get_path("scripts")) / "labkit"


def labkit_command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Collect the programs that a command would turn into, instead of doing so."""
    commands: list[list[str]] = []
    monkeypatch.setattr(environment, "become", lambda argv, *_: commands.append(list(argv)))
    monkeypatch.setattr(zygote_client.Zygote, "start", lambda *_, **__: None)
    return commands


def write_notebook(path: Path) -> Path:
    """Store a notebook with one cell."""
    cell = nbformat.v4.new_code_cell("1")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


# -- labkit itself ------------------------------------------------------------------------------


def test_version() -> None:
    result = labkit_command("--version")
    assert (result.exit_code, result.output) == (0, f"labkit {labkit.__version__}\n")


def test_help_names_every_command() -> None:
    result = labkit_command("--help")
    assert result.exit_code == 0
    for name in ("lab", "run", "test", "mcp", "doctor", "new"):
        assert f" {name} " in result.output


def test_the_installed_script_runs_and_loads_nothing_heavy() -> None:
    done = subprocess.run([LABKIT, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"labkit {labkit.__version__}\n"
    code = "import sys, labkit.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "typer" in loaded
    assert not loaded & {"torch", "IPython", "ipyparallel", "zmq", "nbclient", "pytest"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("launch",),
        ("run",),
        ("run", "x.ipynb", "--ranks", "0"),
        ("run", "x.ipynb", "--ranks", "two"),
        ("run", "x.ipynb", "--timeout", "0"),
        ("lab", "--port", "70000"),
        ("new",),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], started: list[list[str]]) -> None:
    result = labkit_command(*arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.output
    assert started == []


@pytest.mark.parametrize("arguments", [("lab",), ("new", "x"), ("grade", "x"), ("test", "x")])
def test_a_command_of_the_course_names_the_extra_that_is_missing(
    arguments: tuple[str, ...],
    started: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "nbval", None)  # type: ignore[arg-type]
    versions.need.cache_clear()
    result = labkit_command(*arguments)
    assert result.exit_code == 2
    assert f"labkit {arguments[0]} needs nbval, which is not installed. " in result.stderr
    assert result.stderr.endswith('pip install "torch-labkit[course]"\n')
    assert started == list(tmp_path.iterdir()) == []


# -- new and lab --------------------------------------------------------------------------------


def test_new_copies_the_course_and_says_so(tmp_path: Path) -> None:
    result = labkit_command("new", tmp_path / "mine")
    assert result.exit_code == 0
    assert result.output.startswith(f"Course in {tmp_path / 'mine'}: ")
    copied = {path.name for path in (tmp_path / "mine" / "notebooks").glob("*.ipynb")}
    assert {path.name for path in material.notebooks()} == copied


def test_new_refuses_a_folder_of_something_else_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    result = labkit_command("new", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith("labkit: ")
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_lab_makes_the_copy_and_opens_it(tmp_path: Path, started: list[list[str]]) -> None:
    folder = tmp_path / "mine"
    result = labkit_command(
        "lab", folder, "--port", "0", "--no-browser", "--", "--ServerApp.shutdown_no_activity=9"
    )
    assert result.exit_code == 0, result.output
    assert (folder / "notebooks" / "00_start_here.ipynb").is_file()
    [argv] = started
    assert argv[:4] == [sys.executable, "-P", "-m", "jupyterlab"]
    assert {
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        "--no-browser",
    } <= set(argv)
    assert argv[-1] == "--ServerApp.shutdown_no_activity=9"


def test_lab_has_a_zygote_that_belongs_to_what_it_becomes(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        zygote_client.Zygote, "start", lambda *_, survive_exec: asked.append(survive_exec)
    )
    assert labkit_command("lab", tmp_path / "mine").exit_code == 0
    assert asked == [True]
    assert len(started) == 1


def test_lab_without_options_leaves_port_and_browser_to_jupyter(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert labkit_command("lab").exit_code == 0
    [argv] = started
    assert f"--ServerApp.root_dir={tmp_path / 'work'}" in argv
    assert not [word for word in argv if "ServerApp.port" in word or "browser" in word]


@pytest.mark.parametrize(("user", "says"), [(0, True), (1000, False)])
def test_lab_says_that_root_needs_more(
    tmp_path: Path,
    started: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    says: bool,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.delenv("SUDO_USER", raising=False)
    result = labkit_command("lab", tmp_path / "mine")
    assert ("You are root" in result.stderr) is says
    assert ("Better: start it as an ordinary user; in a container" in result.stderr) is says
    assert ("--allow-root" in started[0]) is says
    if says:  # before anything is made
        assert result.output.index("You are root") < result.output.index("Course in")
        monkeypatch.setenv("SUDO_USER", "alice")
        result = labkit_command("lab", tmp_path / "mine")
        assert "Better: start it without sudo, as alice." in result.stderr


def test_lab_warns_where_others_can_put_code_beside_the_notebooks(
    tmp_path: Path, started: list[list[str]]
) -> None:
    folder = tmp_path / "class"
    assert "Other users" not in labkit_command("lab", folder).stderr
    (folder / "notebooks").chmod(0o777)
    result = labkit_command("lab", folder)
    assert f"run as you: everybody can write to {folder}/notebooks. Better" in result.stderr
    assert len(started) == 2


def test_lab_starts_nothing_if_there_is_no_copy(tmp_path: Path, started: list[list[str]]) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    result = labkit_command("lab", tmp_path)
    assert result.exit_code == 2
    assert started == []


# -- run ----------------------------------------------------------------------------------------


def test_run_refuses_what_it_cannot_read_or_write(tmp_path: Path) -> None:
    nb = write_notebook(tmp_path / "a.ipynb")
    (tmp_path / "text.ipynb").write_text("hello")
    (tmp_path / "other.ipynb").write_text("{}")
    for arguments, sentence in {
        (tmp_path / "missing.ipynb",): "cannot be read (No such file or directory).",
        (tmp_path,): "cannot be read (Is a directory).",
        (tmp_path / "text.ipynb",): "is not a Jupyter notebook.",
        (tmp_path / "other.ipynb",): "is not a Jupyter notebook.",
        (nb, "--output", tmp_path): "is a folder; --output takes the name of a file.",
        (nb, "--output", tmp_path / "x" / "y.ipynb"): "to write y.ipynb into.",
    }.items():
        result = labkit_command("run", *arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("labkit: ")
        assert result.stderr.endswith(f"{sentence}\n")
        assert result.stderr.count("\n") == 1
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.ipynb", "text.ipynb", "other.ipynb"}


# -- test ---------------------------------------------------------------------------------------


def test_test_takes_the_course_if_nothing_is_named(started: list[list[str]]) -> None:
    assert labkit_command("test", "--timeout", "7").exit_code == 0
    [argv] = started
    assert "--nbval-cell-timeout=7" in argv
    assert [Path(word) for word in argv if word.endswith(".ipynb")] == material.notebooks()


def test_test_refuses_other_things(tmp_path: Path, started: list[list[str]]) -> None:
    (tmp_path / "code.py").touch()
    for path in (tmp_path, tmp_path / "code.py", tmp_path / "missing.ipynb"):
        result = labkit_command("test", path)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
    assert started == []


# -- doctor -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "exit_code"), [("ok", 0), ("note", 0), ("problem", 1)])
def test_doctor_exits_with_1_only_for_a_problem(
    monkeypatch: pytest.MonkeyPatch, state: str, exit_code: int
) -> None:
    findings = [Finding("Python", "ok", "3.11"), Finding("torch", state, "it [Errno 5] is so")]
    monkeypatch.setattr(examine, "examine", lambda progress: findings)
    result = labkit_command("doctor")
    assert result.exit_code == exit_code
    assert "it [Errno 5] is so" in result.output
    assert state in result.output
