"""Keep what others could lay out of the places from which Python imports.

A notebook may be in a folder where others can write, as a class has it. What its cells import from
there is the user's business; labkit, and the libraries that it needs, come from where they are
installed: the working folder is on the path of a rank, behind Python's own library as IPython has
it, once the rank has all that it needs, and never on that of the controller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..base import trust
from ..base.errors import StartError

#: How the path names the working folder, whichever that is.
WORKING_FOLDER = ""


def check() -> None:
    """Raise StartError if PYTHONPATH, which ranks take over, names a place of other users."""
    friends = trust.installers()
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if not entry and not os.environ.get("PYTHONPATH"):
            continue
        if why := trust.unsafe_reason(entry, friends=friends):
            named = f"names {entry}" if entry else "has an empty entry, which is the working folder"
            raise StartError(
                f"PYTHONPATH {named}, from where the ranks would import what others have put "
                f"there: {why}. Take it out, or let nobody but you write there."
            )


@contextmanager
def without_working_folder() -> Iterator[None]:
    """Import nothing from the working folder meanwhile."""
    taken = [(i, entry) for i, entry in enumerate(sys.path) if _is_working_folder(entry)]
    for _, entry in taken:
        sys.path.remove(entry)
    try:
        yield
    finally:
        for i, entry in taken:
            sys.path.insert(i, entry)


def add_working_folder() -> None:
    """Put the working folder on this process's path, before what was installed."""
    if WORKING_FOLDER in sys.path:
        return
    names = [os.path.basename(entry) for entry in sys.path]
    places = [i for i, name in enumerate(names) if name in ("site-packages", "dist-packages")]
    sys.path.insert(places[0] if places else len(sys.path), WORKING_FOLDER)


def _is_working_folder(entry: str) -> bool:
    if entry == WORKING_FOLDER:
        return True
    try:
        return os.path.samefile(entry, os.getcwd())
    except OSError:
        return False
