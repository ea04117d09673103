"""Keep ``environment.yml`` in step with the lock.

``python -m tests.support.conda_versions --write`` writes it.

Conda users get the versions that everybody else gets. Only what ``pyproject.toml`` asks for
itself is pinned; conda resolves the rest.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
#: conda-forge's names, where they are not PyPI's.
CONDA_NAMES = {"jupyter-client": "jupyter_client", "torch": "pytorch"}
HEADER = """\
# The versions of requirements.lock, for conda users; written by `make lock`.
#   conda env create --file environment.yml && conda activate labkit && labkit lab
"""
#: One entry of the lock: `name==version ; marker \\`.
ENTRY = re.compile(
    r"^(?P<name>[a-z0-9._-]+)(?:\[[^]]*\])?==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+))?"
)


@dataclass(frozen=True)
class Pin:
    """One entry of the lock."""

    name: str  #: canonical: lower case, dashes
    version: str
    marker: str  #: empty: everywhere
    hashes: int  #: number of hashes


def read_lock(text: str) -> list[Pin]:
    """Read every entry of a ``requirements.lock``.

    Raises
    ------
    ValueError
        On a line that is no entry, hash or comment.
    """
    pins: list[Pin] = []
    for line in text.splitlines():
        if match := ENTRY.match(line):
            name = canonicalize_name(match["name"])
            pins.append(Pin(name, match["version"], (match["marker"] or "").strip(), 0))
        elif re.match(r"^    --hash=sha256:[0-9a-f]{64}", line) and pins:
            last = pins.pop()
            pins.append(Pin(last.name, last.version, last.marker, last.hashes + 1))
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"not a line of a lock: {line!r}")
    return pins


def oldest_python(pyproject: dict) -> str:
    """Return the lower bound of ``requires-python``, such as "3.11"; the lock is made for it."""
    bounds = [s for s in SpecifierSet(pyproject["project"]["requires-python"])
              if s.operator == ">="]  # fmt: skip
    (bound,) = bounds
    return bound.version


def direct_dependencies(pyproject: dict) -> dict[str, Requirement]:
    """Return what ``pyproject.toml`` itself depends on, by canonical name: the core's and what the
    course adds, as in the lock."""
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *extras["figures"], *extras["course"]]
    found = {canonicalize_name(r.name): r for r in map(Requirement, texts)}
    found.pop(canonicalize_name(project["name"]))  # the course has the extra for figures
    return dict(sorted(found.items()))


def pinned(name: str, lock: list[Pin], python: str) -> str:
    """Return the version that the lock gives a Linux machine with this Python.

    Raises
    ------
    LookupError
        If the lock has none, or more than one.
    """
    where = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }
    versions = {
        pin.version
        for pin in lock
        if pin.name == name and (not pin.marker or Marker(pin.marker).evaluate(where))
    }
    if len(versions) != 1:
        found = ", ".join(sorted(versions)) or "no version"
        raise LookupError(f"requirements.lock has {found} for {name!r}; run `make lock`")
    return versions.pop()


def render(pyproject_text: str, lock_text: str) -> str:
    """Return the text of ``environment.yml``."""
    pyproject = tomllib.loads(pyproject_text)
    lock = read_lock(lock_text)
    python = oldest_python(pyproject)
    lines = [
        f"python={python}",
        *(
            f"{CONDA_NAMES.get(name, name)}={pinned(name, lock, python)}"
            for name in direct_dependencies(pyproject)
        ),
        "pip",
    ]
    # No `--no-deps` before it: pip takes it on the command line only, not in the list that conda
    # hands over. Nothing is installed twice: every requirement is satisfied by then.
    environment = {
        "name": "labkit",
        "channels": ["conda-forge"],
        "dependencies": [*lines, {"pip": ["--editable .[course]"]}],
    }
    return HEADER + yaml.safe_dump(environment, sort_keys=False)


def problems(pyproject_text: str, lock_text: str, environment_text: str) -> list[str]:
    """Return, one line each, where the three files are out of step."""
    pyproject = tomllib.loads(pyproject_text)
    lock = read_lock(lock_text)
    python = oldest_python(pyproject)
    listed = {}
    for entry in yaml.safe_load(environment_text)["dependencies"]:
        if isinstance(entry, str):
            name, _, version = entry.partition("=")
            listed[name] = version
    out = []
    for name, requirement in direct_dependencies(pyproject).items():
        try:
            version = pinned(name, lock, python)
        except LookupError as error:
            out.append(str(error))
            continue
        if version not in requirement.specifier:
            out.append(f"the lock has {name} {version}, pyproject asks for {requirement.specifier}")
        there = listed.get(CONDA_NAMES.get(name, name))
        if there != version:
            out.append(f"the lock has {name} {version}, environment.yml {there}")
    if not out and environment_text != render(pyproject_text, lock_text):
        out.append("environment.yml is not what `make lock` writes")
    return out


def main() -> int:
    """Write environment.yml, or say what is out of step (exit code 1 if anything is)."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.conda_versions", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="write environment.yml")
    write = parser.parse_args().write
    pyproject, lock = ((ROOT / f).read_text() for f in ("pyproject.toml", "requirements.lock"))
    target = ROOT / "environment.yml"
    if write:
        target.write_text(render(pyproject, lock))
    found = problems(pyproject, lock, target.read_text())
    print("\n".join(found) or "pyproject.toml, requirements.lock and environment.yml are in step")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
