"""What a rank is and does, as the notebook knows it: facts, state, outcome of a cell, end."""

from __future__ import annotations

import platform
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:  # what it imports would delay processes that only have one of these classes
    from .packing import Packed

# -- features that are off ------------------------------------------------------------------------

# torch, ipyparallel and IPython have no public way to some of what labkit needs. The files that
# reach into them (``*_internals``) list each name with the feature that rests on it. What they find
# missing is a :class:`Missing`, which travels from the ranks to the notebook like any value.


@dataclass(frozen=True)
class Feature:
    """Something that labkit can do as long as a library has some names.

    Attributes
    ----------
    names
        The private or undocumented names that it rests on.
    loss
        What is lost without one of them, as the end of a sentence.
    needed
        Whether labkit cannot work at all without it.
    """

    names: tuple[str, ...]
    loss: str
    needed: bool = False


@dataclass(frozen=True)
class Missing:
    """A feature that is off, and why; as text, one sentence.

    >>> str(Missing("torch 2.16", ("Work.wait",), "waits have no line"))
    'torch 2.16 hides Work.wait: waits have no line.'
    """

    library: str  #: with its version; or the user's setting that is the reason
    names: tuple[str, ...]
    loss: str
    needed: bool = False
    feature: str = ""  #: its key
    verb: str = "hides"

    def __str__(self) -> str:
        *others, last = self.names
        names = f"{', '.join(others)} and {last}" if others else last
        return f"{self.library} {self.verb} {names}: {self.loss}."


def find_missing(
    library: str, features: Mapping[str, Feature], is_there: Callable[[str], bool]
) -> dict[str, Missing]:
    """Return the features that are off, by their key in ``features``.

    ``library`` is the name of its distribution, or "Python"; ``is_there`` tells whether it has a
    name.
    """
    from importlib.metadata import version  # not for whoever only has one of these classes

    missing = {}
    for key, feature in features.items():
        if gone := tuple(name for name in feature.names if not is_there(name)):
            number = platform.python_version() if library == "Python" else version(library)
            about = f"{library} {number}"
            missing[key] = Missing(about, gone, feature.loss, feature.needed, key)
    return missing


def sentences(missing: Iterable[Missing]) -> list[str]:
    """Return each sentence once: ranks of one environment all miss the same."""
    return list(dict.fromkeys(map(str, missing)))


def find_missing_in_sources(
    features: Mapping[str, Mapping[str, Feature]], files: Mapping[str, tuple[str, str]]
) -> tuple[Missing, ...]:
    """Return the features that are off, by what the installed sources define.

    ``features`` are by library; names are written ``Owner.name``. ``files`` has the package and
    the file of each owner; one that is not in there is a module of Python's own.
    """

    def is_there(name: str) -> bool:
        owner, _, attribute = name.partition(".")
        if owner in files:
            return is_defined(attribute, *files[owner])
        return hasattr(import_module(owner), attribute)

    found = (find_missing(library, own, is_there) for library, own in features.items())
    return tuple(one for missing in found for one in missing.values())


def folder_of(package: str) -> Path | None:
    """Return the folder of a package without importing it, None if its source is not there."""
    spec = find_spec(package)
    for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
        if (folder / "__init__.py").is_file():
            return folder
    return None


def is_defined(name: str, package: str, file: str) -> bool:
    """Return whether a source file of a package defines a name: a class, a method, an attribute.

    It is read, not imported: most of what labkit looks for is loaded in another process, and
    attributes of objects are not there before the object is. Without a source file to read
    everything counts as defined.
    """
    folder = folder_of(package)
    if folder is None:
        return True
    try:
        source = (folder / file).read_text(encoding="utf-8")
    except OSError:
        return (folder / file).with_suffix(".pyc").exists()
    return _defines(source, name)


def _defines(source: str, name: str) -> bool:
    # By hand: the pattern of each name would take ten times as long to compile as to search for.
    start = -1
    while (start := source.find(name, start + 1)) >= 0:
        before = source[max(0, start - len("class ")) : start]
        after = source[start + len(name) : source.find("\n", start)]
        if before.endswith(("def ", "class ")) and after[:1] in ("(", ":"):
            return True
        assigned = after.startswith(" = ") or (after.startswith(": ") and " = " in after)
        if before.endswith(("self.", "    ")) and assigned:
            return True
    return False


# -- a rank's facts and state ---------------------------------------------------------------------

# moved here


@dataclass(frozen=True)
class ProcessFacts:
    """What a process knows of itself before it is a rank."""

    host: str
    pid: int
    hint: int | None  #: the launcher's number for it
    gpus: tuple[str, ...]  #: that it can compute on: what tells each from the host's others
    nccl: tuple[int, ...] | None  #: version, None where there is no GPU or no NCCL
    cores: int  #: that it may run on
    missing: tuple[Missing, ...] = ()  #: features that are off there
    shares_memory: bool = False  #: with the notebook, by files of ``wire.memory_files``


@dataclass(frozen=True)
class Gpu:
    """What a rank's GPU does."""

    used: int  #: bytes that torch has taken from it in this rank
    total: int  #: bytes that it has
    busy: int | None = None  #: percent of the last moments in which it ran something


@dataclass(frozen=True)
class RankState:
    """What one rank is and does."""

    rank: int
    host: str
    pid: int
    device: str
    backend: str
    state: str  #: "idle", "running", "waiting", "asking", "no answer" or "dead"
    where: str = ""  #: "In[7], line 3"
    line: str = ""  #: "dist.barrier()"
    detail: str = ""  #: what it waits for or asks, how it died, why it gives no answer
    seconds: float | None = None  #: it has waited so long
    memory: int | None = None  #: bytes that would be free if it ended
    gpu: Gpu | None = None
    left: str = ""  #: how a cell has ended the lab's process group, where one has

    def describe(self) -> str:
        """Return what it does, in one line."""
        place = ": ".join(part for part in (self.where, self.line) if part)
        match self.state:
            case "running" if place:
                return f"running {place}"
            case "waiting":
                since = "" if self.seconds is None else f", for {self.seconds:.0f} s"
                return f"waiting in {self.detail}{since}" + (f" at {place}" if place else "")
            case "asking":
                return f"asks {self.detail}" + (f" at {place}" if place else "")
            case "dead":
                return f"dead: {self.detail}"
            case "no answer" if self.detail:
                return f"no answer ({self.detail})"
        return self.state


# -- what a rank made of a cell or a call ---------------------------------------------------------

#: An error as a rank tells it: name, message, formatted lines.
Error = tuple[str, str, list[str]]


class Returned(NamedTuple):
    """What a rank answers to a call of a function, or to a question for a variable."""

    status: Literal["ok", "missing", "error"]
    content: Packed | Error | None = None  #: of "ok" the pickled value, of "error" the error


class CellTime(NamedTuple):
    """How long a cell took on one rank, in seconds; what its GPU had to do for it included."""

    wall: float
    cpu: float  #: of all threads of the process


#: What Jupyter's messages have of an output: ``{"data": mime bundle, "metadata": …}``.
Bundle = dict[str, Any]


@dataclass
class Outcome:
    """What one rank made of a cell or a call."""

    rank: int
    stdout: str = ""
    stderr: str = ""
    displays: list[Bundle] = field(default_factory=list)  #: in order
    result: Bundle | None = None  #: of the last expression
    names: Sequence[str] = ()  #: the ``display_id`` of each display, "" if it has none
    #: What displays under a ``display_id`` shall be, also those of earlier cells.
    updates: Mapping[str, Bundle] = field(default_factory=dict)
    value: Any = None  #: of a call
    error: Error | None = None


# -- how a process ended --------------------------------------------------------------------------


def describe_exit(code: int | None) -> str:
    """Return how a process ended, after "ended with": ``signal 9 (SIGKILL)``, ``exit code 3``.

    ``code`` is negative for a signal, and None if nobody was there to see the end: its host went,
    or the connection to it.
    """
    if code is None:
        return "its host, or with the connection to it"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        return f"signal {-code} ({name})"
    return f"exit code {code}"
