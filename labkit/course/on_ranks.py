"""Try an answer on all ranks at once, within a bound, and collect what it gave."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import cloudpickle

from ..errors import LabError, RankDied, RankError
from ..notebook import lab, live, show
from ..rank_names import label
from ..runtime import diagnosis, recovery, request
from ..runtime.cluster import on_rank
from ..runtime.process_group import GroupKeeper
from ..wire.outcome import Outcome
from .exercise import Exercise, Failed
from .judge import Result

GROUP_CHANGED = (
    "It left another process group behind, so labkit formed the lab's own anew. Make sub-groups "
    "and DDP models again."
)


class TimeUp(KeyboardInterrupt):
    """Say that a trial has used its time: it is stopped as by the stop button."""


class _Bounded(live.Live):
    """What is shown while a trial runs, and the end of it when its time is up."""

    def __init__(self, seconds: float) -> None:
        super().__init__(live.screen())
        self._deadline = time.monotonic() + seconds

    def offer(self, texts: Callable[[], Any], look: live.Look) -> None:
        if time.monotonic() > self._deadline:
            raise TimeUp
        super().offer(texts, look)


def try_on_ranks(exercise: Exercise) -> Result:
    """Try the answer that the ranks' cells have defined; the lab works afterwards.

    Raises
    ------
    LabError
        If no lab runs, or a rank has no such name.
    RankDied
        If a rank has ended before.
    KeyboardInterrupt
        If the learner stops it.
    """
    session = lab.session_of(lab.running())
    keeper, cluster = session.group, session.cluster
    if cluster.deaths:
        raise RankDied(*diagnosis.died(cluster, sorted(cluster.deaths)))
    keeper.check()
    _prepare(exercise, keeper)
    ranks = {(p.host, p.pid): p.rank for p in cluster.places}
    asked = ("trial.trial.run", exercise.trial, exercise.answer, tuple(exercise.forbids), ranks)
    payload = cloudpickle.dumps((on_rank, asked, {}))
    everyone = list(range(cluster.size))
    pending = request.Pending(
        keeper, everyone, lambda view: view.apply_async(on_rank, "calls.call", payload)
    )
    timed_out = False
    try:
        with contextlib.suppress(KeyboardInterrupt):  # raised again below, and explained
            try:
                pending.wait(live=_Bounded(exercise.seconds))
            except TimeUp:
                timed_out = True
    finally:
        forbidden, notes = _aftermath(keeper, pending)
    outcomes = [request._unwrap(outcome) for outcome in pending.outcomes()]
    show.show(outcomes)
    if pending.ending.kind == "interrupted" and not timed_out:
        pending.raise_errors(outcomes)
    yours, counts = [], []
    for outcome in outcomes:
        value, count = outcome.value if outcome.value is not None else (None, None)
        failed = _failure(outcome, pending, exercise, timed_out)
        yours.append(failed or value)
        counts.append(count)
    if timed_out:
        notes = [*diagnosis.what_was_done(keeper, pending.ending), *notes]
    else:
        notes = [*_explain(pending, outcomes), *notes]
    return Result(exercise, cluster.size, yours, expected_on(exercise, cluster.size), counts,
                  forbidden, notes)  # fmt: skip


def expected_on(exercise: Exercise, world_size: int) -> list[Any]:
    """Compute in this process what each rank should have."""
    expected = list(exercise.expected(world_size))
    if len(expected) != world_size:
        raise ValueError(f"{exercise.id}: expected() gives {len(expected)} values")
    return expected


def _prepare(exercise: Exercise, keeper: GroupKeeper) -> None:
    cluster = keeper.cluster
    engines = [place.engine for place in cluster.places]
    defined = cluster.errand(engines, "trial.trial.prepare", [(exercise.answer,)] * len(engines))
    if missing := [rank for rank, there in enumerate(defined) if not there]:
        raise LabError(
            f"{label(missing).capitalize()} {'has' if len(missing) == 1 else 'have'} no "
            f"`{exercise.answer}` yet: run the cell of exercise {exercise.id} first, with %%px."
        )


def _aftermath(keeper: GroupKeeper, pending: request.Pending) -> tuple[list[str], list[str]]:
    """Collect forbidden calls, and leave a group behind that works."""
    cluster = keeper.cluster
    free = [r for r in range(cluster.size) if r not in cluster.deaths and not cluster.is_busy(r)]
    engines = [cluster.places[r].engine for r in free]
    answers = cluster.errand(engines, "trial.trial.aftermath")
    forbidden = sorted({name for names, _ in answers for name in names})
    if pending.ending.kind or pending.failures() or not keeper.join:
        cluster.errand(engines, "trial.trial.settle", [(False,)] * len(engines))
        return forbidden, []
    changed = not all(kept for _, kept in answers)
    usable = not changed and not recovery.out_of_step(cluster)
    if all(cluster.errand(engines, "trial.trial.settle", [(usable,)] * len(engines))):
        return forbidden, []
    keeper.broken = True
    keeper.repair()
    return forbidden, [GROUP_CHANGED if changed else diagnosis.GROUP_ANEW]


def _failure(
    outcome: Outcome, pending: request.Pending, exercise: Exercise, timed_out: bool
) -> Failed | None:
    """Say what stands in the place of a rank's value, None if it has one."""
    cluster, rank = pending.cluster, outcome.rank
    if rank in cluster.deaths:
        return Failed("Died", cluster.deaths[rank])
    if outcome.error is None and outcome.value is not None:
        return None
    if timed_out:
        return Failed("TimedOut", f"stopped after {exercise.seconds:g} s")
    if outcome.error is None:
        return Failed("Stopped", "did not return")
    name, message, _ = outcome.error
    if rank in pending.ending.freed and pending.ending.kind == "deadlock":
        return Failed("Deadlock", "waited in vain")
    if pending.ending.kind and diagnosis.is_consequence(outcome.error):
        return Failed("Stopped", "waited for a rank that failed")
    return Failed(name, message)


def _explain(pending: request.Pending, outcomes: list[Outcome]) -> list[str]:
    """Return the errors of the ranks as a cell would show them."""
    try:
        pending.raise_errors(outcomes)
    except RankError as error:
        return error.blocks
    return []
