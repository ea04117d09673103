"""Say which of labkit's features are off because another library has changed inside.

torch, ipyparallel and IPython have no public way to some of what labkit needs. The files that
reach into them (``*_internals``) list each name with the feature that rests on it. What they
find missing is a :class:`Missing`, which travels from the ranks to the notebook like any value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version


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

    library: str  #: with its version
    names: tuple[str, ...]
    loss: str
    needed: bool = False

    def __str__(self) -> str:
        *others, last = self.names
        names = f"{', '.join(others)} and {last}" if others else last
        return f"{self.library} hides {names}: {self.loss}."


def find_missing(
    library: str, features: Mapping[str, Feature], is_there: Callable[[str], bool]
) -> dict[str, Missing]:
    """Return the features that are off, by their key in ``features``.

    ``library`` is the name of its distribution; ``is_there`` tells whether it has a name.
    """
    missing = {}
    for key, feature in features.items():
        if gone := tuple(name for name in feature.names if not is_there(name)):
            about = f"{library} {version(library)}"
            missing[key] = Missing(about, gone, feature.loss, feature.needed)
    return missing


def sentences(missing: Iterable[Missing]) -> list[str]:
    """Return each sentence once: ranks of one environment all miss the same."""
    return list(dict.fromkeys(map(str, missing)))
