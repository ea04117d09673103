"""Compare the packages that are here with those that labkit's own metadata asks for.

A package that is too old fails late and in words of its own (``'Process' object has no attribute
'net_connections'``). :func:`check` says it before anything starts, with the command that mends it.
:func:`need` says which extra is not installed: what draws needs ``torch-labkit[figures]``, say.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Literal

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from .errors import LabError, StartError

#: What pip installs: PyPI's ``labkit`` is someone else's.
DISTRIBUTION = "torch-labkit"
#: Makes a warning of it, for somebody who wants to try all the same.
VARIABLE = "LABKIT_ANY_VERSIONS"
#: Modules whose names are not their packages'.
MODULES = {
    "ipython": "IPython",
    "jupyter-client": "jupyter_client",
    "nvidia-ml-py": "pynvml",
    "pillow": "PIL",
    "pyzmq": "zmq",
}
#: Missing packages that a sentence lists.
FEW = 3
#: The extras that the command line and the library ask for themselves.
Extra = Literal["", "figures", "course", "mcp"]
Kind = Literal["missing", "old", "new"]

_said: set[str] = set()  #: warnings that this process has printed


@dataclass(frozen=True)
class Misfit:
    """A package whose version is not one that labkit asks for."""

    name: str
    needed: str  #: with its specifier: "ipyparallel>=9.1,<10"
    version: str  #: "" if there is none
    kind: Kind


def required(extra: Extra = "") -> list[str]:
    """Return what the installed labkit requires, or what one of its extras adds; nothing where it
    has no metadata (a folder on ``PYTHONPATH``)."""
    try:
        listed = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    found: list[str] = []
    for one in map(Requirement, listed):
        of_extra = "extra" in str(one.marker)
        if of_extra == bool(extra) and (not one.marker or one.marker.evaluate({"extra": extra})):
            found.append(f"{one.name}{one.specifier}")
    return found


def misfits(requirements: Sequence[str] | None = None) -> list[Misfit]:
    """List the packages that are missing, too old, or newer than the bound (None: of the installed
    labkit's requirements)."""
    found = []
    for one in map(Requirement, required() if requirements is None else requirements):
        version = _version(one.name)
        if (one.marker is None or one.marker.evaluate()) and (kind := _judge(one, version)):
            bounds = ",".join(sorted(map(str, one.specifier), reverse=True))  # the lower one first
            found.append(Misfit(one.name, one.name + bounds, version, kind))
    return found


def check(requirements: Sequence[str] | None = None) -> None:
    """Refuse packages that are too old; print one warning about those beyond an upper bound.

    A missing package is left to its own ImportError, because a distribution may bring a module
    without metadata.

    Raises
    ------
    StartError
        If a package is too old, unless the variable LABKIT_ANY_VERSIONS is set.
    """
    found = misfits(requirements)
    old, new = ([one for one in found if one.kind == kind] for kind in ("old", "new"))
    if old and not os.environ.get(VARIABLE):
        raise StartError(sentence(old))
    for warning in [sentence(some) for some in (old, new) if some]:
        if warning not in _said:
            _said.add(warning)
            print(f"labkit: {warning}")


@cache
def need(extra: Extra, what: str, *packages: str) -> None:
    """Refuse what needs packages of an extra that are not installed.

    That something is missing is not remembered: after ``%pip install`` the next call works.

    Parameters
    ----------
    extra
        The extra, as in ``pip install "torch-labkit[figures]"``.
    what
        What needs it, in the singular: "lab.watch".
    packages
        What of the extra it needs; all if there are none.

    Raises
    ------
    LabError
        If a package is missing: which ones, and the command that installs the extra.
    """
    names = packages or [Requirement(one).name for one in required(extra)]
    lacking = [name for name in names if find_spec(MODULES.get(name, name)) is None]
    if not lacking:
        return
    few = lacking if len(lacking) <= FEW else [*lacking[:FEW], f"{len(lacking) - FEW} more"]
    are = "is" if len(lacking) == 1 else "are"
    mend = _command([f"{DISTRIBUTION}[{extra}]"], restart=False)
    raise LabError(f"{what} needs {', '.join(few)}, which {are} not installed. {mend}")


def sentence(found: Sequence[Misfit]) -> str:
    """Return what does not fit, all of it too new or nothing, and how to mend it."""
    here = ", ".join(f"{one.name} is {one.version or 'missing'}" for one in found)
    needed = ", ".join(one.needed for one in found)
    mend = _command([one.needed for one in found], restart=True)
    if found[0].kind == "new":
        return f"{here}, newer than labkit was tested with ({needed}). If something fails: {mend}"
    return f"{here}, but labkit needs {needed}. {mend}"


def _command(packages: Sequence[str], *, restart: bool) -> str:
    """Return how to install packages from here: in a notebook, or in a terminal."""
    command = " ".join(["pip install", *(f'"{package}"' for package in packages)])
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return f"Run: {shlex.quote(sys.executable)} -m {command}"
    return f"In a cell: %{command}" + (", and then restart the kernel." if restart else "")


def _judge(requirement: Requirement, version: str) -> Kind | None:
    """Return what is wrong with a version, if anything. A build on the way to a release counts as
    the release: 2.11.0a0+nv25 as 2.11.0."""
    try:
        release = Version(version).base_version
    except InvalidVersion:
        return None if version else "missing"
    wrong = [one for one in requirement.specifier if not one.contains(release)]
    if not wrong:
        return None
    return "new" if all(one.operator in ("<", "<=") for one in wrong) else "old"


def _version(name: str) -> str:
    """Return the version of a package that counts here, "" if there is none, or it has none.

    It is that of the module, if this process has imported an older one before pip installed the
    one that fits, as in Colab. ``metadata.version`` would parse the package's whole README, five
    times as slow.
    """
    module = sys.modules.get(MODULES.get(name, name))
    loaded = vars(module).get("__version__") if module else None  # some warn when it is asked for
    try:
        text = metadata.distribution(name).read_text("METADATA") or ""
    except metadata.PackageNotFoundError:
        return ""
    installed = re.search(r"^Version: *(\S+)", text, re.MULTILINE)
    if isinstance(loaded, str) and loaded[:1].isdigit():
        return loaded
    return installed[1] if installed else ""
