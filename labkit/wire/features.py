"""Say which of labkit's features are off because another library has changed inside.

torch, ipyparallel and IPython have no public way to some of what labkit needs. The files that
reach into them (``*_internals``) list each name with the feature that rests on it. What they
find missing is a :class:`Missing`, which travels from the ranks to the notebook like any value.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


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
    """Tell whether a source file of a package defines a name: a class, a method, an attribute.

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
