"""Know how a launcher of ipyparallel fares: whether its ranks will come, and which have ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from . import ipyparallel_internals, slurm, ssh


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
    return slurm.trouble(
        launcher.job_id, log.read_text("utf-8", errors="replace") if log.exists() else ""
    )


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
    if ipyparallel_internals.has_stopped(launcher):
        return True
    threads = map(ipyparallel_internals.thread_of, _processes(launcher).values())
    return any(thread is not None and not thread.is_alive() for thread in threads)


def forget_ended(launcher: Any, deadline: float) -> None:
    """Wait for the processes of a launcher up to ``deadline``; let it forget those that ended.

    To stop one, ipyparallel opens several connections to its host, also if it is gone.
    """
    for key, one in _processes(launcher).items():
        thread = ipyparallel_internals.thread_of(one)
        if thread is None or one is launcher:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if not thread.is_alive():
            ipyparallel_internals.forget(one)
            launcher.launchers.pop(key, None)


def _processes(launcher: Any) -> dict[str, Any]:
    """Return the launchers of single processes behind a launcher of a set."""
    return dict(getattr(launcher, "launchers", {"": launcher}))
