"""Keep pyproject.toml, requirements.lock and environment.yml in step."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.conda_versions import (
    CONDA_NAMES,
    ROOT,
    direct_dependencies,
    oldest_python,
    pinned,
    problems,
    read_lock,
)

PYPROJECT_TEXT, LOCK_TEXT, ENVIRONMENT_TEXT = (
    (ROOT / name).read_text() for name in ("pyproject.toml", "requirements.lock", "environment.yml")
)
PYPROJECT = tomllib.loads(PYPROJECT_TEXT)
LOCK = read_lock(LOCK_TEXT)
DEPENDENCIES = direct_dependencies(PYPROJECT)
#: Packages of which labkit uses what they keep private, or (torchvision) whose every release is
#: made for one torch: a release that nobody has tried may break it.
BOUNDED = ("ipykernel", "ipyparallel", "ipython", "jupyterlab", "nbval", "torch", "torchvision")
JOBS = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]


@pytest.mark.parametrize("name", DEPENDENCIES)
def test_the_lock_satisfies_every_dependency(name):
    pins = [pin for pin in LOCK if pin.name == name]
    assert pins, f"{name} is not in the lock"
    for pin in pins:
        assert pin.version in DEPENDENCIES[name].specifier


@pytest.mark.parametrize("name", DEPENDENCIES)
def test_conda_users_get_the_locked_version(name):
    version = pinned(name, LOCK, oldest_python(PYPROJECT))
    listed = yaml.safe_load(ENVIRONMENT_TEXT)["dependencies"]
    assert f"{CONDA_NAMES.get(name, name)}={version}" in listed


def test_the_three_files_are_in_step():
    assert problems(PYPROJECT_TEXT, LOCK_TEXT, ENVIRONMENT_TEXT) == []


def test_an_edited_version_is_noticed_wherever_it_is():
    version = pinned("torch", LOCK, oldest_python(PYPROJECT))
    edits = (
        ("pyproject.toml", (PYPROJECT_TEXT.replace("torch>=", "torch>=1"), LOCK_TEXT)),
        ("the lock", (PYPROJECT_TEXT, LOCK_TEXT.replace(f"torch=={version}", "torch==1.0"))),
        ("a dependency more", (PYPROJECT_TEXT.replace('"tqdm', '"nope>=1", "tqdm'), LOCK_TEXT)),
    )
    for what, (pyproject, lock) in edits:
        assert problems(pyproject, lock, ENVIRONMENT_TEXT), what
    for old, new in ((f"pytorch={version}", "pytorch=1.0"), ("- tqdm=", "- tqdm=0"),
                     ("conda-forge", "defaults")):  # fmt: skip
        edited = ENVIRONMENT_TEXT.replace(old, new)
        assert edited != ENVIRONMENT_TEXT
        assert problems(PYPROJECT_TEXT, LOCK_TEXT, edited), old


def test_every_locked_package_has_hashes():
    assert [pin.name for pin in LOCK if not pin.hashes] == []
    assert len(LOCK) > len(DEPENDENCIES)


@pytest.mark.parametrize("text", [LOCK_TEXT, ENVIRONMENT_TEXT], ids=["lock", "environment"])
def test_no_address_is_in_a_lock(text):
    assert "://" not in text
    assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host", text)


def test_python_3_11_is_the_oldest():
    supported = SpecifierSet(PYPROJECT["project"]["requires-python"])
    assert "3.11.0" in supported
    assert "3.10.99" not in supported
    assert oldest_python(PYPROJECT) == "3.11"


# -- bounds, and the CI jobs that try them ------------------------------------------------------


def bound(name: str, operator: str) -> Version:
    """Return the one bound of a dependency in that direction."""
    (version,) = [s.version for s in DEPENDENCIES[name].specifier if s.operator == operator]
    return Version(version)


def command(job: str) -> list[str]:
    """Return the words of a job's own command, its last step."""
    return JOBS[job]["steps"][-1]["run"].replace('"', "").split()


def python_of(job: str) -> str:
    (version,) = [
        step["with"]["python-version"]
        for step in JOBS[job]["steps"]
        if "setup-python" in step.get("uses", "")
    ]
    return version


def test_what_labkit_reaches_into_has_an_upper_bound_and_nothing_else():
    bounded = [n for n, r in DEPENDENCIES.items() if any(s.operator == "<" for s in r.specifier)]
    assert sorted(bounded) == sorted(BOUNDED)


@pytest.mark.parametrize("name", ["torch", "torchvision"])
def test_the_newest_torch_that_is_allowed_is_the_locked_one(name):
    locked = Version(pinned(name, LOCK, oldest_python(PYPROJECT)))
    assert bound(name, "<") == Version(f"{locked.major}.{locked.minor + 1}")


def lower_bounds(pyproject_text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a copy of ``.ci/lower-bounds`` beside some ``pyproject.toml``."""
    (folder / ".ci").mkdir(exist_ok=True)
    shutil.copy2(ROOT / ".ci/lower-bounds", folder / ".ci")
    (folder / "pyproject.toml").write_text(pyproject_text)
    command = [sys.executable, folder / ".ci/lower-bounds"]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_job_installs_every_lower_bound_exactly(tmp_path):
    assert command("oldest") == [".ci/test-with", "--lowest"]
    asked = lower_bounds(PYPROJECT_TEXT, tmp_path).stdout.splitlines()
    found = {canonicalize_name(r.name): str(r.specifier) for r in map(Requirement, asked)}
    assert found == {name: f"=={bound(name, '>=')}" for name in DEPENDENCIES}


def test_a_dependency_without_a_lower_bound_is_refused(tmp_path):
    done = lower_bounds(PYPROJECT_TEXT.replace('"psutil>=', '"psutil<'), tmp_path)
    assert done.returncode
    assert "'psutil<" in done.stderr
    assert "has no lower bound" in done.stderr


def test_what_labkit_imports_is_declared():
    """Only what pyproject.toml names has a lower bound that is tested."""
    packages = packages_distributions()
    packages.pop("labkit", None)
    names = {name for path in (ROOT / "labkit").rglob("*.py") for name in imported(path)}
    # What is no package is of Python itself, or a file beside a notebook.
    used = {canonicalize_name(packages[name][0]) for name in names if name in packages}
    assert used <= set(DEPENDENCIES)
    assert {"traitlets", "pyzmq", "nbformat", "jupyter-client", "numpy"} <= used


def imported(path: Path) -> set[str]:
    """Return the top-level modules that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_jobs_run_on_the_oldest_python_and_on_newer_ones():
    assert python_of("test") == python_of("oldest") == oldest_python(PYPROJECT)
    assert command("test")[0] == ".ci/run"
    assert command("python") == [".ci/test-with"]
    assert python_of("python") == "${{ matrix.python }}"
    oldest = Version(oldest_python(PYPROJECT))
    newer = JOBS["python"]["strategy"]["matrix"]["python"]
    supported = [
        classifier.rpartition(" ")[2]
        for classifier in PYPROJECT["project"]["classifiers"]
        if classifier.startswith("Programming Language :: Python :: 3.")
    ]
    assert [str(oldest), *newer] == supported
    assert all(
        version in SpecifierSet(PYPROJECT["project"]["requires-python"]) for version in newer
    )


def test_macos_runs_what_starts_no_rank():
    assert JOBS["macos"]["runs-on"] == "macos-latest"
    assert python_of("macos") in JOBS["python"]["strategy"]["matrix"]["python"]
    assert [step["run"] for step in JOBS["macos"]["steps"] if "run" in step] == [
        "make lint",
        ".ci/test-with -- tests/unit",
    ]


def test_only_the_job_with_the_nightly_torch_may_fail_and_it_begins_where_the_bounds_end():
    assert [name for name, job in JOBS.items() if job.get("continue-on-error")] == ["nightly"]
    script, beyond, *asked = command("nightly")
    assert (script, beyond) == (".ci/test-with", "--beyond")
    assert asked == [f"{name}>={bound(name, '<')}.dev0" for name in ("torch", "torchvision")]


def test_every_job_is_bounded_in_time():
    assert [name for name, job in JOBS.items() if "timeout-minutes" not in job] == []


# -- .ci/test-with, with stand-ins for what it calls --------------------------------------------

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "{calls}"
case "$*" in
  -c*) echo 3.11 ;;
  .ci/lower-bounds) exec "{python}" "$@" ;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$0" "$3/bin/uv" ;;
esac
"""


@pytest.fixture
def test_with(tmp_path: Path) -> Callable[..., list[str]]:
    """Run a copy of the script with some arguments; return the commands that it called."""
    calls, python = tmp_path / "calls", tmp_path / "python"
    python.write_text(STAND_IN.format(calls=calls, python=sys.executable))
    python.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy2(ROOT / ".ci/test-with", tmp_path / ".ci")
    shutil.copy2(ROOT / ".ci/lower-bounds", tmp_path / ".ci")
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path)

    def run(*arguments: str) -> list[str]:
        environment = {**os.environ, "PYTHON": str(python)}
        script = tmp_path / ".ci/test-with"
        subprocess.run([script, *arguments], env=environment, check=True, capture_output=True)
        return calls.read_text().splitlines()

    return run


def test_other_versions_are_resolved_from_the_lock_and_tested_beside_it(test_with, tmp_path):
    calls = test_with("torch==2.11", "ipyparallel==9.1")
    (folder,) = (tmp_path / "build").iterdir()
    assert folder.name == "with-python3.11-torch-2.11-ipyparallel-9.1"
    assert (folder / "wanted.txt").read_text() == "torch==2.11\nipyparallel==9.1\n"
    assert (folder / "requirements.lock").read_text() == LOCK_TEXT
    assert (tmp_path / "requirements.lock").read_text() == LOCK_TEXT
    (resolve,) = [call for call in calls if call.startswith("uv pip compile")]
    assert f"--constraint build/{folder.name}/wanted.txt" in resolve
    assert f"--output-file build/{folder.name}/requirements.lock" in resolve
    (sync,) = [call for call in calls if call.startswith("uv pip sync")]
    assert sync.endswith(f"--require-hashes build/{folder.name}/requirements.lock")
    assert calls[-1] == "python -m pytest tests/unit tests/ranks"


def test_the_lower_bounds_are_installed_exactly_when_asked_to(test_with, tmp_path):
    calls = test_with("--lowest", "--", "tests/unit/wire")
    (folder,) = (tmp_path / "build").iterdir()
    assert folder.name == "with-python3.11-lowest"
    wanted = (folder / "wanted.txt").read_text().splitlines()
    assert f"psutil=={bound('psutil', '>=')}" in wanted
    assert len(wanted) == len(DEPENDENCIES)
    assert any("--constraint" in call for call in calls)
    assert calls[-1] == "python -m pytest tests/unit/wire"
