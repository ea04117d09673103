"""Keep pyproject.toml, requirements.lock and environment.yml in step."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from packaging.specifiers import SpecifierSet

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


def test_a_line_that_is_no_entry_is_refused():
    with pytest.raises(ValueError, match="not a line of a lock"):
        read_lock("torch>=2\n")
