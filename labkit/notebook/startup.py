"""Check what ``labkit.start`` was asked for, and start it.

The warm process comes first: ipyparallel is imported here while torch is imported there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import psutil

from ..base import interrupts, log, variables
from ..base.errors import Interrupted, StartError, UsageError, red
from ..launch import import_path, ipyparallel_internals, placement, preconditions
from ..launch.warm_process import WarmProcess
from ..launch.zygote_client import PRELOAD, fork_is_safe
from ..wire import processes
from ..wire.processes import count_cores
from ..wire.state import sentences
from ..wire.texts import sanitize_streams
from . import shell

if TYPE_CHECKING:
    from ..launch.launcher import Launcher
    from .lab import Lab

#: Ranks that `start()` gives on a machine without a GPU.
DEFAULT_RANKS = 4
MAX_LOCAL_RANKS = 256
#: Where the variable LABKIT_MAX_RANKS is not set: no limit.
MAX_RANKS = sys.maxsize
#: What to leave for one idle rank, bytes (`make bench` measures what it takes).
RANK_BYTES = 64 << 20


@contextlib.contextmanager
def _said_when_stopped() -> Iterator[None]:
    """Return in a sentence that somebody has stopped the start."""
    try:
        yield
    except KeyboardInterrupt:
        text = "the start was stopped."
        raise Interrupted(text, [f"{red('Interrupted')}: {text}"]) from None


@interrupts.shielded()
@import_path.without_working_folder()
@_said_when_stopped()
def start(
    n: int | None,
    *,
    engines: str,
    join: bool,
    timeout: float,
    preload: Sequence[str],
    autoreload: bool,
    config: Mapping[str, Mapping[str, Any]],
) -> Lab:
    """Start a lab: the body of :func:`labkit.start`."""
    preconditions.open_standard_streams()
    preconditions.check_folder()
    sanitize_streams()
    import_path.check()
    check_libraries()
    log.begin()
    processes.send_whole()
    n = check_size(override_size(n), engines)
    most = check_most(n)
    check_engines(engines)
    check_timeout(timeout)
    check_preload(preload, engines)
    check_autoreload(autoreload)
    check_config(config, engines)
    variables.threads()
    variables.seconds(variables.SUSPECT)
    if engines != "local":
        from ..launch import external

        n = external.check(n, engines, config)
        check_most(n)
    else:
        preconditions.check_open_files(n or DEFAULT_RANKS)
        preconditions.check_threads(n or DEFAULT_RANKS)
        preconditions.check_loopback()
        preconditions.check_interface("GLOO_SOCKET_IFNAME")
    stop_current()
    with contextlib.ExitStack() as undo, interrupts.cancellable():
        interrupts.check()
        undo.callback(shell.keep_magics())  # ipyparallel's client registers its own
        launcher = choose_launcher(n, engines, preload, config)
        undo.callback(launcher.end)

        from ..runtime.cluster import RankCluster
        from ..runtime.session import Session
        from .lab import Lab, make_current

        ipyparallel_internals.mend_magics()
        size = n or min(launcher.count_gpus() or DEFAULT_RANKS, most)
        cluster = RankCluster.start(size, launcher)
        undo.callback(cluster.close)
        cluster.autoreload = autoreload
        launcher.check_preload()
        if engines == "local" and any(place.backend == "nccl" for place in cluster.places):
            preconditions.check_interface("NCCL_SOCKET_IFNAME", prefixes=True)
        lab = Lab(Session.form(cluster, join=join, timeout=timeout))
        interrupts.check()
        undo.pop_all()
    make_current(lab)
    _load_magics()
    for sentence in (*sentences(cluster.missing), *placement.warnings(cluster.places)):
        print(f"labkit: {sentence}")
    if interrupts.take():  # it came when all was there, and nobody would have the lab
        lab.stop()
        raise KeyboardInterrupt
    return lab


def check_libraries() -> None:
    """Raise StartError if ipyparallel hides what no lab can do without."""
    for missing in ipyparallel_internals.check():
        if missing.needed:
            raise StartError(str(missing))


def choose_launcher(
    n: int | None,
    engines: str,
    preload: Sequence[str],
    config: Mapping[str, Mapping[str, Any]],
) -> Launcher:
    """Return what will start the ranks: for "local" a warm process, which starts now."""
    if engines == "local" and fork_is_safe():
        warm = WarmProcess.start((*PRELOAD, *preload), thread_settings(n))
        try:
            warm.fork_controller()
            # Only now: it imports ipyparallel, which takes a while.
            from ..launch.launcher import ForkedLauncher
        except BaseException:
            warm.close()
            raise
        return ForkedLauncher(warm)
    if engines == "local":
        print("labkit: this system cannot fork safely, so ranks start one by one (slower).")
    from ..launch.external_launcher import ExternalLauncher

    return ExternalLauncher(engines, config)


def stop_current() -> None:
    """Stop the lab that this notebook has, if any: running the start cell twice is normal."""
    module = sys.modules.get("labkit.notebook.lab")
    lab = module.current() if module else None
    if lab is not None:
        lab.stop()


def check_size(n: object, engines: str) -> int | None:
    """Return the number of ranks that somebody asked for.

    UsageError: if it is no positive whole number. StartError: if it is more than this machine can
    hold.
    """
    if n is None:
        return None
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise UsageError(f"The number of ranks must be a whole number from 1 up, got {n!r}.")
    if engines == "local":
        free = psutil.virtual_memory().available
        limit = max(1, min(MAX_LOCAL_RANKS, free // RANK_BYTES))
        if n > limit:
            raise StartError(f"{n} ranks are more than this machine can hold: at most {limit} now.")
    return n


def check_most(n: int | None) -> int:
    """Return how many ranks a lab may have here, by the variable LABKIT_MAX_RANKS.

    StartError: if ``n`` is more.
    """
    most = variables.whole_number(variables.MAX_RANKS) or MAX_RANKS
    if n is not None and n > most:
        raise StartError(
            f"{n} ranks are more than the {most} that {variables.MAX_RANKS} allows here; "
            f"labkit.start({most}) starts as many."
        )
    return most


def override_size(n: int | None) -> int | None:
    """Make the variable LABKIT_RANKS (``labkit run --ranks``) replace the notebook's number."""
    given = variables.whole_number(variables.RANKS)
    return n if given is None else given


def check_engines(engines: object) -> None:
    """Raise UsageError unless ipyparallel has a launcher of that name."""
    if engines == "local":  # always there: the others are looked up in every installed package
        return
    known = {point.name for point in entry_points(group="ipyparallel.engine_launchers")}
    if engines not in known:
        raise UsageError(f"engines must be one of {', '.join(sorted(known))}, got {engines!r}.")


def check_timeout(timeout: object) -> None:
    """Raise UsageError unless ``timeout`` is a positive number of seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise UsageError(f"timeout must be a positive number of seconds, got {timeout!r}.")


def check_preload(preload: object, engines: str) -> None:
    """Raise UsageError unless ``preload`` is a list of module names that these engines can take."""
    if isinstance(preload, str) or not isinstance(preload, Sequence):
        raise UsageError(
            f'preload must be a list of names, as in ["torchvision"], got {preload!r}.'
        )
    wrong = [m for m in preload if not isinstance(m, str) or not m.replace(".", "_").isidentifier()]
    if wrong:
        raise UsageError(f"preload must have names of modules, got {wrong[0]!r}.")
    if preload and engines != "local":
        raise UsageError(f'preload needs engines="local", whose ranks share it, got {engines!r}.')


def check_autoreload(autoreload: object) -> None:
    """Raise UsageError unless ``autoreload`` is True or False: IPython's modes are not for here."""
    if not isinstance(autoreload, bool):
        raise UsageError(f"autoreload must be True or False, got {autoreload!r}.")


def check_config(config: object, engines: str) -> None:
    """Raise UsageError unless ``config`` has settings of launcher classes that are used."""
    settings = list(config.items()) if isinstance(config, Mapping) else [(config, None)]
    for name, values in settings:
        if not (isinstance(name, str) and isinstance(values, Mapping)):
            raise UsageError(
                'config must have settings of launcher classes, as in {"SSHEngineSetLauncher": '
                f'{{"engines": {{"host": 2}}}}}}, got {config!r}.'
            )
    if config and engines == "local":
        raise UsageError('config is for ipyparallel\'s own launchers; engines="local" reads none.')


def thread_settings(size: int | None) -> dict[str, str]:
    """Share the cores among the ranks, unless OMP_NUM_THREADS says otherwise already."""
    threads = max(1, count_cores() // (size or DEFAULT_RANKS))
    given = "" if variables.threads() is None else os.environ[variables.THREADS]
    return {variables.THREADS: given or str(threads)}


def _load_magics() -> None:
    """Give the notebook ``%%px`` and ``%%torchrun`` (a plain Python program needs neither)."""
    found = shell.current()
    if found is not None:
        from . import names, torchrun
        from .magics import LabMagics

        LabMagics.load(found)
        names.load(found)
        names.explain_errors(found)
        torchrun.load(found)
