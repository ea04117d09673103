"""Find a teacher's own exercises: files of the folder ``exercises`` beside the notebook, and those
that cells define with ``@labkit.exercise``.

An id of one's own begins with a letter, those of the course with a digit, so neither hides the
other. The files are no modules that a rank could import, so what a trial needs of them is sent
along with it; they are read anew whenever one of them has changed.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from ..base.errors import UsageError
from .exercise import OWN_ID, Exercise

FOLDER = "exercises"
#: The package that the files are modules of: ``from ._shared import expected`` works in them.
_PACKAGE = "labkit_own_exercises"
#: What the code of a trial in a cell is called, so that it is no line of an answer.
IN_CELL = "<trial of exercise "

#: Name, time and size of each file, as they were when the package was made.
_seen: tuple[Any, ...] = ()
#: Those that cells have defined.
_of_cells: dict[str, Exercise] = {}

Trial = Callable[..., Any]


def exercise(id: str, **description: Any) -> Callable[[Trial], Trial]:
    """Define an exercise of your own by its trial, as a decorator.

    ``labkit.check(id)`` finds it until the kernel ends. In a file of the folder ``exercises``
    beside the notebook, ``EXERCISE = Exercise(…)`` does the same for every notebook there.

    Parameters
    ----------
    id
        Begins with a letter, such as ``"my1"``; ids of the course begin with a digit.
    description
        The other arguments of ``Exercise`` in ``labkit/course/exercise.py``, but for ``trial``:
        ``title``, ``answer`` and ``expected`` at least.

    Raises
    ------
    UsageError
        If the id belongs to the course, or the description is wrong.

    Examples
    --------
    >>> @labkit.exercise(
    ...     "my1",
    ...     title="Name the neighbour before you",
    ...     answer="before",
    ...     expected=lambda n: [(rank - 1) % n for rank in range(n)],
    ... )
    ... def trial(answer, here):
    ...     return answer()
    >>> import torch.distributed as dist
    >>> lab["before"] = lambda: (dist.get_rank() - 1) % dist.get_world_size()
    >>> verdict = labkit.check("my1")
    my1  Name the neighbour before you
    ...
    my1 passed.
    """
    if not isinstance(id, str) or not OWN_ID.fullmatch(id):
        raise UsageError(
            f'The id of your own exercise begins with a letter ("my1"); {id!r} does not.'
        )

    def define(trial: Trial) -> Trial:
        try:
            made = Exercise(id=id, trial=trial, **description)
        except (TypeError, ValueError) as error:
            said = str(error).replace("Exercise.__init__()", "labkit.exercise")
            raise UsageError(f"Exercise {id} cannot be defined: {said}.") from None
        if isinstance(trial, FunctionType):
            _rename(trial, f"{IN_CELL}{id}>")
        _of_cells[id] = made
        return trial

    return define


def _rename(trial: FunctionType, name: str) -> None:
    """Give the code of a trial a file name of its own: what it raises is then no error of a cell,
    where answers are written."""
    lines = linecache.getlines(trial.__code__.co_filename)
    linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    trial.__code__ = _renamed(trial.__code__, name)


def _renamed(code: CodeType, name: str) -> CodeType:
    inner = (_renamed(c, name) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=name, co_consts=tuple(inner))


def ids() -> list[str]:
    """List the ids of the exercises in files and cells, without loading any."""
    return sorted({*(path.stem for path in _files() if OWN_ID.fullmatch(path.stem)), *_of_cells})


def find(name: str) -> Exercise:
    """Return the exercise with an id such as ``"my1"``.

    Raises
    ------
    UsageError
        If there is none, there are two, or its file is broken: then with the line.
    """
    path = Path(FOLDER, f"{name}.py")
    if name in _of_cells and path.exists():
        raise UsageError(
            f"There are two exercises {name!r}, one in {path} and one in a cell of this notebook: "
            "give one of them another id, and restart the kernel."
        )
    if name in _of_cells:
        return _of_cells[name]
    if not path.is_file():
        known = ", ".join(ids())
        others = f"your own are {known}" if known else "you have none of your own"
        raise UsageError(
            f'There is no exercise {name!r}: an id of the course is like "00-1", {others}, '
            f"and there is no file {path} beside this notebook."
        )
    return _load(path)


def refuse_hidden(name: str) -> None:
    """Raise UsageError if there is a file for an exercise whose id is the course's."""
    path = Path(FOLDER, f"{name}.py")
    if path.exists():
        raise UsageError(
            f"{path} cannot be found by its id, which belongs to the course: rename the file and "
            "the id in it, to one that begins with a letter."
        )


def is_own(filename: str) -> bool:
    """Return whether code with this file name is that of an exercise found here."""
    package = sys.modules.get(_PACKAGE)
    folders = [] if package is None else list(package.__path__)
    return filename.startswith(IN_CELL) or str(Path(filename).parent) in folders


def _files() -> list[Path]:
    return sorted(Path(FOLDER).glob("*.py"))


def _load(path: Path) -> Exercise:
    _forget_if_changed(path.parent.resolve())
    try:
        module = importlib.import_module(f"{_PACKAGE}.{path.stem}")
    except (Exception, SystemExit) as error:
        raise UsageError(_told(path, error)) from None
    found = getattr(module, "EXERCISE", None)
    if not isinstance(found, Exercise):
        raise UsageError(f"{path} defines no EXERCISE = Exercise(…).")
    if found.id != path.stem:
        raise UsageError(f"{path} has the exercise {found.id!r}: give it the file's name as id.")
    return found


def _forget_if_changed(folder: Path) -> None:
    """Make the package anew if a file of the folder has changed, or it is another folder."""
    global _seen
    stats = [(path.name, path.stat()) for path in _files() if path.is_file()]
    seen = (folder, *((name, s.st_mtime_ns, s.st_size, s.st_ino) for name, s in stats))
    if seen == _seen and _PACKAGE in sys.modules:
        return
    for name in [n for n in sys.modules if n.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[_PACKAGE] = package
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # before the one that takes what a .pyc holds
    # Ranks cannot import them: functions and classes are sent as code.
    cloudpickle.register_pickle_by_value(package)
    linecache.checkcache()
    _seen = seen


class _Finder:
    """Find the modules of the package in its folder as it is now."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        if not path or not name.startswith(f"{_PACKAGE}."):
            return None
        return FileFinder(path[0], (_Source, [".py"])).find_spec(name)


class _Source(SourceFileLoader):
    """Load a module from its source: a ``.pyc`` does not notice a second edit in one second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _told(path: Path, error: BaseException) -> str:
    """Say what is wrong in a file of the folder, and in which line."""
    folder = str(path.parent.resolve())
    places = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    said = str(error)
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
        said = error.msg
    inside = [(Path(file), line) for file, line in places if str(Path(file).parent) == folder]
    file, line = inside[-1] if inside else (path, None)
    where = f"{FOLDER}/{file.name}" + (f", line {line}" if line else "")
    name = type(error).__name__
    return f"{where}: {name}: {said}" if said else f"{where}: {name}"
