"""Know how a launcher of ipyparallel fares: whether its ranks will come, and which have ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LabError
from . import slurm, ssh
from .warm_process import describe_exit

if TYPE_CHECKING:
    from ..cluster import RankCluster

#: Seconds between looks at what a launcher of ipyparallel knows of its ranks.
TROUBLE_SECONDS = 2.0


def wait_for_ranks(cluster: RankCluster, deadline: float) -> None:
    """Wait until all ranks of a cluster are connected.

    Raises
    ------
    LabError
        As soon as it is certain that one will not come, or at the deadline (``time.monotonic``).
    """
    launcher, next_look = cluster.cluster.engine_set, 0.0
    while len(cluster.connected()) < cluster.size:
        if time.monotonic() > next_look:
            if why := trouble(launcher):
                raise LabError(f"{why}{log_of(launcher)}")
            next_look = time.monotonic() + TROUBLE_SECONDS
        exits = getattr(launcher, "exits", None)
        if exits:
            index, (_, code) = next(iter(exits.items()))
            how = describe_exit(code)
            raise LabError(f"Rank {index} ended at start-up ({how}){log_of(launcher)}")
        if exits is None and any_ended(launcher):
            raise LabError(
                f'engines="{cluster.engines}" ended at start-up before all {cluster.size} ranks '
                f"were there{log_of(launcher)}"
            )
        if cluster.warm is not None and cluster.warm.closed.is_set():
            raise LabError(cluster.warm.obituary())
        if time.monotonic() > deadline:
            why = delay(launcher)
            raise LabError(
                f"Only {len(cluster.connected())} of {cluster.size} ranks connected within "
                f"{cluster.start_seconds():.0f} s{why and f': {why}'}{log_of(launcher)}"
            )
        time.sleep(0.005)


def log_of(launcher: Any) -> str:
    """Return the end of what ranks have written, as the rest of a sentence."""
    text = launcher.get_output().strip() if launcher is not None else ""
    return f"; its log ends:\n{text[-1500:]}" if text else "."


def has_job(launcher: Any) -> bool:
    """Tell whether the ranks of a launcher are a job of Slurm."""
    from ipyparallel.cluster.launcher import SlurmEngineSetLauncher

    return isinstance(launcher, SlurmEngineSetLauncher) and bool(launcher.job_id)


def refusal(error: Exception) -> str:
    """Put what a launcher's own command said into a sentence, "" if it is none that is known."""
    return slurm.refusal(error) or ssh.refusal(error)


def trouble(launcher: Any) -> str:
    """Say why the ranks of a launcher will not come, "" if they may. Takes milliseconds."""
    if not has_job(launcher):
        return ""
    log = Path(launcher.output_file)
    return slurm.trouble(launcher.job_id, log.read_text(errors="replace") if log.exists() else "")


def delay(launcher: Any) -> str:
    """Say why ranks are not there yet, "" if nothing is known."""
    return slurm.delay(launcher.job_id) if has_job(launcher) else ""


# -- its processes ------------------------------------------------------------------------------


def any_ended(launcher: Any) -> bool:
    """Tell whether a process has ended that a launcher of ipyparallel has started.

    Each is followed by a thread, which ends with it. What the launcher itself says comes late:
    it hears of an end when its event loop runs, in a plain Python program only now and then.
    """
    if launcher is None:
        return False
    if launcher.state == "after" or (launcher.stop_data or {}).get("engines"):
        return True
    threads = [getattr(one, "_wait_thread", None) for one in _processes(launcher).values()]
    return any(thread is not None and not thread.is_alive() for thread in threads)


def forget_ended(launcher: Any, deadline: float) -> None:
    """Wait for the processes of a launcher up to ``deadline``; let it forget those that ended.

    To stop one, ipyparallel opens several connections to its host, also if it is gone.
    """
    for key, one in _processes(launcher).items():
        thread = getattr(one, "_wait_thread", None)
        if thread is None or one is launcher:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if not thread.is_alive():
            one.stop_callbacks.clear()
            one.state = "after"
            launcher.launchers.pop(key, None)


def _processes(launcher: Any) -> dict[str, Any]:
    """Return the launchers of single processes behind a launcher of a set."""
    return dict(getattr(launcher, "launchers", {"": launcher}))
