"""What `make setup` does with the Python that it finds, and which torch it installs."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.conda_versions import ROOT, read_lock

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TESTED = [
    version
    for classifier in PROJECT["classifiers"]
    for version in re.findall(r"Python :: (3\.\d+)$", classifier)
]
OLDEST, NEWEST = TESTED[0], TESTED[-1]
OLD, NEW = "3.10", f"3.{int(NEWEST[2:]) + 1}"
#: Answers as Python and uv do, and notes each call. `offline`: no CPU wheels can be fetched.
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "{folder}/calls"
case "$*" in
  -c*) echo {version} ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/uv" ;;
  *--torch-backend=cpu*) test ! -e "{folder}/offline" ;;
esac
"""

Make = Callable[..., subprocess.CompletedProcess[str]]


def stand_in(folder: Path, name: str, version: str) -> Path:
    """Put a program into ``folder/bin`` that says it is this version of Python."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(STAND_IN.format(folder=folder, version=version))
    path.chmod(0o755)
    return path


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Run make in a checkout that has nothing but what the set-up reads."""
    checkout = tmp_path / "checkout"
    for name in ("Makefile", ".ci/setup", "requirements.lock", "pyproject.toml"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_bytes((ROOT / name).read_bytes())
    (checkout / ".ci/setup").chmod(0o755)
    for version in TESTED:
        stand_in(tmp_path, f"python{version}", version)
    stand_in(tmp_path, "python3", OLDEST)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "calls").write_text("")
        environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            ["make", "setup", *arguments], cwd=checkout, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


def calls(tmp_path: Path) -> str:
    """Return what the stand-ins were called with by the last run of make."""
    return (tmp_path / "calls").read_text()


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (OLD, f"labkit needs Python {OLDEST} to {NEWEST}, and 'python3' is {OLD}"),
        (NEW, f"labkit is tested with Python {OLDEST} to {NEWEST}, and 'python3' is {NEW}"),
    ],
)
def test_a_python_that_does_not_fit_is_one_sentence_and_nothing_is_made(
    make: Make, tmp_path: Path, version: str, sentence: str
) -> None:
    stand_in(tmp_path, "python3", version)
    before = sorted((tmp_path / "checkout").rglob("*"))
    done = make()
    said = [line for line in done.stderr.splitlines() if "***" not in line]
    assert done.returncode == 2
    assert len(said) == 1
    assert said[0].startswith(f"make setup: {sentence}; make setup PYTHON=python{NEWEST}")
    assert done.stdout == ""
    assert sorted((tmp_path / "checkout").rglob("*")) == before


def test_where_no_other_python_is_there_the_sentence_says_which_to_install(
    make: Make, tmp_path: Path
) -> None:
    for version in TESTED:  # as pyenv's commands answer for a version that is not installed
        stand_in(tmp_path, f"python{version}", "").write_text("#!/bin/sh\nexit 127\n")
    stand_in(tmp_path, "python3", OLD)
    said = f"install Python {NEWEST}, then make setup PYTHON=python{NEWEST}\n"
    assert said in make().stderr
    assert f"no Python named 'snake' here that runs; {said}" in make("PYTHON=snake").stderr


def test_a_newer_python_can_be_tried(make: Make, tmp_path: Path) -> None:
    stand_in(tmp_path, "python3", NEW)
    done = make("PYTHON=python3")
    assert done.returncode == 0, done.stderr
    assert f"once with Python {NEW}" in done.stderr


def test_the_environment_is_made_anew_for_another_python_only(make: Make, tmp_path: Path) -> None:
    """One that is up to date stays, silently, whatever python3 is by now."""
    python = tmp_path / "checkout/.venv/bin/python"
    assert make(f"PYTHON=python{NEWEST}").returncode == 0
    stand_in(tmp_path, "python3", OLD)
    for arguments in [(), (f"PYTHON=python{NEWEST}",)]:
        done = make(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert f"echo {NEWEST} " in python.read_text()
    done = make(f"PYTHON=python{OLDEST}")
    assert f"making .venv anew: it has Python {NEWEST}" in done.stderr
    assert f"echo {OLDEST} " in python.read_text()


def test_what_a_python_that_is_too_old_has_left_is_made_anew(make: Make, tmp_path: Path) -> None:
    old = stand_in(tmp_path, "old", OLD)
    subprocess.run([old, "-m", "venv", tmp_path / "checkout/.venv"], check=True)
    assert make().returncode == 0
    assert f"echo {OLDEST} " in (tmp_path / "checkout/.venv/bin/python").read_text()


# -- CPU=1 --------------------------------------------------------------------------------------


def test_without_cuda_all_but_torch_is_checked_as_ever(make: Make, tmp_path: Path) -> None:
    done = make("CPU=1")
    assert done.returncode == 0, done.stderr
    (sync,) = [line for line in calls(tmp_path).splitlines() if line.startswith("uv pip sync")]
    assert sync.endswith("--torch-backend=cpu .venv/cpu.lock")
    whole = read_lock((ROOT / "requirements.lock").read_text())
    pins = read_lock((tmp_path / "checkout/.venv/cpu.lock").read_text())
    assert {pin.name for pin in pins if not pin.hashes} == {"torch", "torchvision"}
    assert {pin for pin in pins if pin.hashes} < set(whole)
    versions = {(pin.name, pin.version, pin.marker) for pin in whole}
    assert versions > {(pin.name, pin.version, pin.marker) for pin in pins}
    left_out = {pin.name for pin in whole} - {pin.name for pin in pins}
    assert {"triton", "nvidia-cudnn-cu13", "cuda-toolkit"} <= left_out
    assert all(re.match("triton|cuda-|nvidia-", name) for name in left_out)
    assert not {requirement for requirement in PROJECT["dependencies"]
                if re.split("[^a-z0-9-]", requirement)[0] in left_out}  # fmt: skip


def test_the_environment_stays_without_cuda_until_cpu_0(make: Make, tmp_path: Path) -> None:
    make("CPU=1")
    make(f"PYTHON=python{NEWEST}")
    assert "--torch-backend=cpu" in calls(tmp_path)
    lock = tmp_path / "checkout/requirements.lock"
    lock.write_text(lock.read_text() + "# another lock\n")
    assert make().returncode == 0
    assert "--torch-backend=cpu" in calls(tmp_path)
    assert make("CPU=1").stderr == ""
    assert make("CPU=0").returncode == 0
    assert "--torch-backend" not in calls(tmp_path)
    assert "--require-hashes requirements.lock" in calls(tmp_path)
    assert make().stderr == ""


def test_where_the_cpu_wheels_cannot_be_fetched_one_sentence_says_what_to_do(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "offline").touch()
    done = make("CPU=1")
    assert done.returncode == 2
    assert "make setup CPU=0 takes all from PyPI" in done.stderr
    assert not (tmp_path / "checkout/.venv/.installed").exists()
    assert make().returncode == 0  # the whole lock: nothing was installed without CUDA
    assert "--torch-backend" not in calls(tmp_path)


def test_another_value_of_cpu_is_refused(make: Make, tmp_path: Path) -> None:
    done = make("CPU=yes")
    assert done.returncode == 2
    assert "CPU=yes: CPU=1 installs torch without CUDA's libraries" in done.stderr
    assert not (tmp_path / "checkout/.venv").exists()
