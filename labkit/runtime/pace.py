"""Measure how busy this machine is: the round trip of a question to a rank with nothing to do."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable

from .. import times
from ..errors import LabError
from ..wire.requests import AskBusy
from . import control
from .cluster import RankCluster

_log = logging.getLogger(__name__)


def measure(cluster: RankCluster, ranks: Iterable[int]) -> None:
    """Ask one of some ranks whether it is busy, and record how long the answer takes if it is not.

    Nobody waits for the answer. What this process has computed meanwhile is subtracted: a figure
    that is being drawn here delays the answer, too, and says nothing of the machine.
    """
    now = cluster.clock.now()
    if now < cluster.measure_after:
        return
    cluster.measure_after = now + times.PACE_MEASURED
    rank = next((r for r in ranks if r not in cluster.deaths), None)
    if rank is None:
        return
    own = time.process_time()
    with contextlib.suppress(LabError):  # the controller has ended
        posted = control.post(cluster, rank, AskBusy())
        if posted is None:
            return

        def take(_: object) -> None:
            seconds = cluster.clock.now() - now - (time.process_time() - own)
            with contextlib.suppress(Exception):  # it has died, or is of another version
                if not posted.answer().busy:
                    times.pace.note(seconds)
                    _log.debug("rank %d answers in %.4f s: %s", rank, seconds, times.pace)

        posted.future.add_done_callback(take)
