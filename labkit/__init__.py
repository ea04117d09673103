"""labkit: a notebook lab for torch.distributed.

>>> import labkit
>>> lab = labkit.start(4)  # four ranks in a process group
>>> lab["rank"]
[0, 1, 2, 3]

Then ``%%px`` cells run on every rank, which finds ``rank``, ``world_size``, ``device``, ``torch``
and ``dist`` there.
"""

import importlib as _importlib
import sys as _sys
from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .base.errors import (
    CellSyntaxError,
    DataError,
    Deadlock,
    Interrupted,
    LabError,
    LabStopped,
    RankDied,
    RankError,
    StartError,
    SuspectedDeadlock,
    UsageError,
)

if _TYPE_CHECKING:
    from . import figures, hosts
    from .course import datasets
    from .course.check import check, hint, solution
    from .course.own_exercises import exercise
    from .course.progress_table import progress
    from .course.verdict import Verdict
    from .notebook.lab import Lab
    from .teaching.classroom import classroom

__version__ = "0.1.0"
__all__ = [
    "CellSyntaxError",
    "DataError",
    "Deadlock",
    "Interrupted",
    "Lab",
    "LabError",
    "LabStopped",
    "RankDied",
    "RankError",
    "StartError",
    "SuspectedDeadlock",
    "UsageError",
    "Verdict",
    "check",
    "classroom",
    "datasets",
    "exercise",
    "figures",
    "hint",
    "hosts",
    "progress",
    "solution",
    "start",
]


def start(
    n: int | None = None,
    *,
    engines: str = "local",
    join: bool = True,
    timeout: float = 600.0,
    preload: _Sequence[str] = (),
    autoreload: bool = False,
    config: _Mapping[str, _Mapping[str, _Any]] | None = None,
) -> "Lab":
    """Start ``n`` ranks and form their process group.

    A lab that this notebook started before is stopped first.

    Parameters
    ----------
    n
        Number of ranks. None: one per GPU, or 4 on a machine without one; for "ssh" as many as
        ``config`` gives the hosts.
    engines
        Where they run: "local", or ipyparallel's launchers "mpi", "slurm" (one job; its nodes
        need the home folder, this Python and the notebook's folder), "ssh".
    join
        Whether labkit forms the process group: on NCCL where each rank has a GPU, else on gloo.
        False leaves ``init_process_group`` to you, and with it the choice of a backend.
    timeout
        Seconds after which a collective that cannot finish fails.
    preload
        Modules that every rank needs, such as "torchvision": imported once and shared.
    autoreload
        Whether each rank reloads modules whose files have changed, before each cell and each
        ``lab.run`` (IPython's ``%autoreload 2``).
    config
        Settings of ipyparallel's own launchers, by class, as in a traitlets ``Config``:
        ``{"SSHEngineSetLauncher": {"engines": {"node1": 4, "node2": 4}}}``.

    Raises
    ------
    UsageError
        If an argument is wrong.
    StartError
        If a package is too old, or the ranks cannot start; nothing is left running then.
    Interrupted
        If somebody pressed stop; nothing is left running then either.

    Examples
    --------
    >>> lab = labkit.start(2)
    >>> lab
    Lab (2 ranks, gloo, cpu)
    >>> lab.run(lambda: 6 * 7)
    [42, 42]
    >>> lab.stop()
    """
    from .base import versions

    versions.check()  # what is too old may not even be imported below
    from .notebook import shell, startup

    lab = startup.start(
        n,
        engines=engines,
        join=join,
        timeout=timeout,
        preload=preload,
        autoreload=autoreload,
        config={} if config is None else config,
    )
    _complete_exercises(shell.current())
    return lab


def _complete_exercises(shell: _Any) -> None:
    """Make Tab know the ids of the exercises, where there is a shell of IPython's."""
    if shell is None:
        return
    from .course import catalogue
    from .notebook.shell import add_matcher

    add_matcher(shell, catalogue.complete)


def load_ipython_extension(shell: _Any) -> None:
    """Give a notebook without a lab ``%%torchrun`` and the exercises' ids: ``%load_ext labkit``."""
    from .base import versions

    versions.check()
    from .notebook import torchrun
    from .notebook.shell import offer_magics

    torchrun.load(shell)
    offer_magics(shell)
    _complete_exercises(shell)


def _offer_magics() -> None:
    """Make ``%%px`` in a notebook say that there is no lab yet, and ``%%torchrun`` need none."""
    if "IPython" in _sys.modules:
        from .notebook import shell

        if (found := shell.current()) is not None:
            shell.offer_magics(found)
            found.magics_manager.register_lazy("torchrun", __name__)


_offer_magics()

#: Name -> its module, and the name in there ("": the module itself).
_LAZY = {
    "Lab": (".notebook.lab", "Lab"),
    "Verdict": (".course.verdict", "Verdict"),
    "check": (".course.check", "check"),
    "classroom": (".teaching.classroom", "classroom"),
    "datasets": (".course.datasets", ""),
    "exercise": (".course.own_exercises", "exercise"),
    "figures": (".figures", ""),
    "hint": (".course.check", "hint"),
    "hosts": (".hosts", ""),
    "progress": (".course.progress_table", "progress"),
    "solution": (".course.check", "solution"),
}


if not _TYPE_CHECKING:  # else a type checker would take any name for one of labkit's

    def __getattr__(name: str) -> _Any:
        """Import the rest on first use: ``import labkit`` itself loads neither torch nor zmq."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, inside = _LAZY[name]
        found = _importlib.import_module(module, __name__)
        return getattr(found, inside) if inside else found


def __dir__() -> list[str]:
    """List the public names: what tab completion shows, whatever has been imported so far."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
