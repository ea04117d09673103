"""labkit: a notebook lab for torch.distributed.

    import labkit
    lab = labkit.start(4)      # four ranks in a process group

Then ``%%px`` cells run on every rank, which finds ``rank``, ``world_size``, ``device``, ``torch``
and ``dist`` there.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import CellSyntaxError, Deadlock, LabError, RankDied, RankError

if TYPE_CHECKING:
    from . import figures
    from .course import datasets
    from .course.check import check, hint, solution
    from .notebook.lab import Lab

__version__ = "0.1.0"
__all__ = [
    "CellSyntaxError",
    "Deadlock",
    "Lab",
    "LabError",
    "RankDied",
    "RankError",
    "check",
    "datasets",
    "figures",
    "hint",
    "solution",
    "start",
]


def start(
    n: int | None = None,
    *,
    engines: str = "local",
    join: bool = True,
    timeout: float = 600.0,
    preload: Sequence[str] = (),
    config: Mapping[str, Mapping[str, Any]] | None = None,
) -> Lab:
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
        False leaves ``init_process_group`` to the learner.
    timeout
        Seconds after which a collective that cannot finish fails.
    preload
        Modules that every rank needs, such as "torchvision": imported once and shared.
    config
        Settings of ipyparallel's own launchers, by class, as in a traitlets ``Config``:
        ``{"SSHEngineSetLauncher": {"engines": {"node1": 4, "node2": 4}}}``.

    Raises
    ------
    LabError
        If an argument is wrong or the ranks cannot start; nothing is left running then.
    """
    from .notebook import startup

    return startup.start(
        n,
        engines=engines,
        join=join,
        timeout=timeout,
        preload=preload,
        config={} if config is None else config,
    )


#: Name -> its module, and the name in there ("": the module itself).
_LAZY = {
    "Lab": (".notebook.lab", "Lab"),
    "check": (".course.check", "check"),
    "datasets": (".course.datasets", ""),
    "figures": (".figures", ""),
    "hint": (".course.check", "hint"),
    "solution": (".course.check", "solution"),
}


def __getattr__(name: str) -> Any:
    """Import the rest on first use: ``import labkit`` itself loads neither torch nor zmq."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, inside = _LAZY[name]
    found = importlib.import_module(module, __name__)
    return getattr(found, inside) if inside else found
