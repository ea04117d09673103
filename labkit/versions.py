"""Compare the packages that are here with those that labkit's own metadata asks for.

A package that is too old fails late and in words of its own (``'Process' object has no attribute
'net_connections'``). :func:`check` says it before anything starts, in one sentence and with the
command that mends it. The bounds are those of ``pyproject.toml``, read from what was installed.

``LABKIT_ANY_VERSIONS=1`` makes a warning of it, for somebody who wants to try all the same.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from .errors import StartError

VARIABLE = "LABKIT_ANY_VERSIONS"
#: Modules whose names are not their packages'; "" where the module does not say its version.
MODULES = {
    "ipython": "IPython",
    "jupyter-client": "jupyter_client",
    "nvidia-ml-py": "",
    "pillow": "PIL",
    "pyzmq": "zmq",
}
Kind = Literal["missing", "old", "new", "loaded"]

_said: set[str] = set()  #: warnings that this process has printed


@dataclass(frozen=True)
class Misfit:
    """A package whose version is not one that labkit asks for."""

    name: str
    needed: str  #: its specifier, such as ">=9.1,<10"
    version: str  #: the installed one; "" if there is none
    kind: Kind
    #: The version that this process has imported, if kind is "loaded": the installed one fits.
    loaded: str = ""


def required() -> list[str]:
    """Return what the installed labkit requires; nothing where it has no metadata."""
    try:
        return metadata.requires("labkit") or []
    except metadata.PackageNotFoundError:
        return []


def misfits(requirements: Sequence[str] | None = None) -> list[Misfit]:
    """List the packages that are missing, too old, newer than the bound, or loaded too early.

    Parameters
    ----------
    requirements
        Requirements as in ``pyproject.toml``; None: those of the installed labkit, none
        where it has no metadata (a folder on ``PYTHONPATH``).
    """
    wanted = required() if requirements is None else requirements
    return [found for text in wanted for found in _compare(Requirement(text))]


def check(requirements: Sequence[str] | None = None) -> None:
    """Refuse packages that are too old; print one warning about those beyond an upper bound.

    A missing package is left to its own ImportError, because a distribution may bring a module
    without metadata.

    Raises
    ------
    StartError
        If a package is too old, or this process has imported an older one than is installed now,
        unless the variable LABKIT_ANY_VERSIONS is set: then it is a warning.
    """
    found = misfits(requirements)
    refused = [sentence(some) for kind in ("old", "loaded") if (some := _of(found, kind))]
    if refused and not os.environ.get(VARIABLE):
        raise StartError(refused[0])
    warnings = [*refused, *filter(None, [sentence(_of(found, "new"))])]
    for warning in warnings:
        if warning not in _said:
            _said.add(warning)
            print(f"labkit: {warning}")


def sentence(found: Sequence[Misfit], *, notebook: bool | None = None) -> str:
    """Say what does not fit and how to mend it; "" for nothing.

    Parameters
    ----------
    found
        Packages of one kind.
    notebook
        Whether the reader has a notebook (None: see whether IPython runs here).
    """
    if not found:
        return ""
    in_notebook = _is_notebook() if notebook is None else notebook
    if found[0].kind == "loaded":
        loaded = _listed([f"{one.name} {one.loaded}" for one in found])
        installed = _listed([one.version for one in found])
        were = "was" if len(found) == 1 else "were"
        what = "the kernel (in Colab: Runtime > Restart session)" if in_notebook else "Python"
        return f"{loaded} had been imported before {installed} {were} installed: restart {what}."
    needed = _listed([one.name + one.needed for one in found])
    here = _listed([f"{one.name} is {one.version or 'missing'}" for one in found])
    mend = command(found, notebook=in_notebook)
    if found[0].kind == "new":
        return f"{here}, newer than labkit was tested with ({needed}). If something fails: {mend}"
    return f"{here}, but labkit needs {needed}. {'In a cell' if in_notebook else 'Run'}: {mend}"


def command(found: Sequence[Misfit], *, notebook: bool) -> str:
    """Return what installs versions that fit, and in a notebook what to do after it."""
    wanted = " ".join(f'"{one.name}{one.needed}"' for one in found)
    if notebook:
        return f"%pip install {wanted}, and then restart the kernel."
    return f"{shlex.quote(sys.executable)} -m pip install {wanted}"


def _compare(requirement: Requirement) -> Iterator[Misfit]:
    """Yield the one misfit of a requirement, if there is one here."""
    if requirement.marker and not requirement.marker.evaluate():
        return
    name, needed = requirement.name, _ordered(requirement)
    installed = _installed(name)
    if installed is None:
        yield Misfit(name, needed, "", "missing")
    elif kind := _judge(requirement, installed):
        yield Misfit(name, needed, installed, kind)
    elif (loaded := _loaded(name)) and _judge(requirement, loaded) == "old":
        yield Misfit(name, needed, installed, "loaded", loaded)


def _judge(requirement: Requirement, version: str) -> Kind | None:
    """Return "old" or "new" for a version outside the bounds, None for one that fits.

    A build on the way to a release counts as the release: 2.11.0a0+nv25 as 2.11.0.
    """
    try:
        release = Version(version).base_version
    except InvalidVersion:
        return None
    wrong = [one for one in requirement.specifier if not one.contains(release)]
    if not wrong:
        return None
    return "new" if all(one.operator in ("<", "<=") for one in wrong) else "old"


def _installed(name: str) -> str | None:
    """Return the version of a package; None if there is none, or it does not say which it is.

    ``metadata.version`` parses the whole file with its README, five times as slow.
    """
    try:
        text = metadata.distribution(name).read_text("METADATA")
    except metadata.PackageNotFoundError:
        return None
    found = re.search(r"^Version: *(\S+)", text or "", re.MULTILINE)
    try:
        return found[1] if found else metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError):
        return None


def _loaded(name: str) -> str:
    """Return the version of the module that this process has imported, "" if it has not."""
    module = sys.modules.get(MODULES.get(canonicalize_name(name), name))
    version = vars(module).get("__version__") if module else None  # some warn when it is asked for
    return version if isinstance(version, str) else ""


def _ordered(requirement: Requirement) -> str:
    """Return a specifier with its lower bound first, as people write it."""
    return ",".join(sorted(map(str, requirement.specifier), reverse=True))


def _of(found: Sequence[Misfit], kind: str) -> list[Misfit]:
    return [one for one in found if one.kind == kind]


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
