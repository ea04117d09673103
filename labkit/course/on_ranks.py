"""Try an answer on all ranks at once, within a bound, and collect what it gave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle

from ..base import interrupts
from ..base.errors import Interrupted, RankDied, UsageError
from ..base.rank_names import label
from ..deadlock import group_causes
from ..deadlock.needs import Situation
from ..notebook import lab
from ..notebook.run import run
from ..notebook.show import plain
from ..runtime import diagnosis, recovery, request
from ..runtime.cluster import RankCluster
from ..runtime.control import sample_idle
from ..runtime.follow import Finished
from ..runtime.process_group import GroupManager
from ..runtime.request import Request, values
from ..wire import remote_calls
from ..wire.requests import May
from ..wire.samples import GroupKey, Sample
from ..wire.state import Outcome, describe_exit
from ..wire.trial import Found, Unusable
from .exercise import Exercise, Failed
from .judge import judge
from .result import Result

#: A line that an error on a rank came through: ``-->   5     return x / 0``.
_POINTED = re.compile(r"\s*-->\s+\d+\s+(.*)")
GROUP_CHANGED = (
    "The answer has replaced the default process group, so labkit has formed the lab's own anew. "
    "Create sub-groups and DDP models again."
)
#: What a note says of the lab's group.
GROUP_NOTES = (GROUP_CHANGED, diagnosis.GROUP_ANEW)


def try_on_ranks(exercise: Exercise) -> Result:
    """Try the answer that the ranks' cells have defined; the lab works afterwards.

    Raises LabError if no lab runs or a rank has no such name, RankDied if a rank has ended before.
    """
    results = attempts(exercise)
    result = next(results)
    if judge(result).passed:
        for fewer in results:
            if not judge(fewer).passed:
                result.found = "one size"
            result.notes += [note for note in fewer.notes if note in GROUP_NOTES]
    return result


def attempts(exercise: Exercise) -> Iterator[Result]:
    """Yield what the answer gives on all ranks; then, if it may contain their number as a constant,
    what it gives on all but the last.

    Raises as :func:`try_on_ranks` does.
    """
    with interrupts.shielded():
        session = lab.session_of(lab.running())
        group, cluster = session.group, session.cluster
        if cluster.deaths:
            raise RankDied(*diagnosis.died(cluster, sorted(cluster.deaths)))
        group.check()
        result = _try(exercise, group, cluster.size)
    yield result
    with interrupts.shielded():
        if not _may_fix_size(exercise, cluster):
            return
        fewer = _try(exercise, group, cluster.size - 1)
    yield fewer


def _may_fix_size(exercise: Exercise, cluster: RankCluster) -> bool:
    """Return whether an answer has to be tried on fewer ranks too: its constants make one think so,
    and fewer ranks are still enough."""
    if cluster.size <= exercise.fewest or cluster.off_reason("fewer ranks"):
        return False
    first = cluster.places[0].engine
    ask = {first: remote_calls.may_fix_size(exercise.answer, cluster.size)}
    return cluster.remote_call(ask) == [True]


def _try(exercise: Exercise, group: GroupManager, world_size: int) -> Result:
    """Try an answer on the first ``world_size`` ranks, as if there were no others."""
    cluster = group.cluster
    with interrupts.cancellable():
        found = _prepare(exercise, group)
    if found != "written":
        nothing = [None] * world_size
        return Result(exercise, world_size, nothing, nothing, found=found)
    uncounted = cluster.off_reason("counting") if exercise.goals or exercise.forbids else ""
    if uncounted:  # nobody shall fail for what was not counted
        exercise = replace(exercise, goals=(), forbids=())
    groups = _groups(cluster)
    sent = _send(exercise, group, world_size)
    try:
        finished = run(sent, timeout=exercise.seconds, tolerate=True)
    except BaseException:
        _end_trial(group, whole=False, in_order=False)
        raise
    crossed, in_order = "", False
    if whole := not finished.ending.kind and not sent.failures():
        after = sample_idle(cluster)
        crossed = _crossed(cluster, groups, after)
        # Whether what was sent has gone, or goes, to where it was meant to.
        in_order = not crossed and not recovery.out_of_step(cluster, after)
    forbidden, notes = _end_trial(group, whole=whole, in_order=in_order)
    if isinstance(finished.error, Interrupted):
        raise finished.error
    yours, counts = _collect(finished, cluster, exercise, world_size)
    told = [] if finished.error is None else finished.error.blocks
    # Errors are noted as a cell would show them, but for a headline that the verdict has.
    headline = finished.ending.kind == "timeout"
    return Result(
        exercise,
        world_size,
        yours=yours,
        expected=expected_on(exercise, world_size),
        counts=counts,
        forbidden=forbidden,
        notes=[*told[headline:], *notes, *filter(None, [uncounted])],
        waited="\n".join(" ".join(plain(line).split()) for line in told),
        crossed=crossed,
    )


def _send(exercise: Exercise, group: GroupManager, world_size: int) -> Request:
    """Send the trial to all ranks."""
    cluster = group.cluster
    ranks = {(p.host, p.pid): p.rank for p in cluster.places}
    forbids = tuple(exercise.forbids)
    asked = remote_calls.run_trial(exercise.trial, exercise.answer, forbids, ranks, world_size)
    try:
        payload = cloudpickle.dumps((remote_calls.on_rank, (asked,), {}))
    except Exception as error:
        if not exercise.is_own:
            raise
        raise UsageError(
            f"The trial of exercise {exercise.id} cannot be sent to the ranks ({error}): it may "
            "use functions, modules and plain values, but not the lab, files or connections."
        ) from None
    return request.call(group, range(cluster.size), payload, noted=False, may=May.CHECK)


def _collect(
    finished: Finished, cluster: RankCluster, exercise: Exercise, world_size: int
) -> tuple[list[Any], list[Mapping[str, int] | None]]:
    """Return what each rank gave, or why it gave nothing, and what was counted there."""
    yours, counts = [], []
    answers = zip(finished.outcomes, values(finished.outcomes), strict=True)
    for outcome, answer in list(answers)[:world_size]:
        value, count = answer if answer is not None else (None, None)
        if isinstance(value, Unusable):
            value = Failed.of_trial(value)
        yours.append(_failure(outcome, cluster, finished.ending, exercise) or value)
        counts.append(count)
    return yours, counts


def expected_on(exercise: Exercise, world_size: int) -> list[Any]:
    """Compute in this process what each rank should have."""
    expected = list(exercise.expected(world_size))
    if len(expected) != world_size:
        raise ValueError(f"{exercise.id}: expected() gives {len(expected)} values")
    return expected


def _prepare(exercise: Exercise, group: GroupManager) -> Found:
    """Get the ranks ready; tell what they have by the answer's name, if it is the same on all."""
    cluster = group.cluster
    call = remote_calls.prepare_trial(exercise.answer)
    defined = cluster.remote_call({place.engine: call for place in cluster.places})
    if missing := [rank for rank, found in enumerate(defined) if found == "missing"]:
        raise UsageError(
            f"{label(missing).capitalize()} {'has' if len(missing) == 1 else 'have'} no "
            f"`{exercise.answer}` yet: run the cell of exercise {exercise.id} first, with %%px."
        )
    return defined[0] if len(set(defined)) == 1 else "written"


def _groups(cluster: RankCluster) -> dict[int, set[GroupKey]]:
    """Return the groups that each rank has made."""
    return {rank: set(s.groups) for rank, s in sample_idle(cluster).items()}


def _crossed(
    cluster: RankCluster, before: Mapping[int, set[GroupKey]], after: Mapping[int, Sample]
) -> str:
    """Return which groups each rank has made for itself in a trial, "" if none: by chance nobody
    may have been blocked, but what was sent in them has gone to other ranks than meant."""
    situation = Situation(cluster.size, dict(after))
    new = (
        (rank, key)
        for rank, s in sorted(situation.samples.items())
        for key in sorted(set(s.groups) - before.get(rank, set()))
    )
    return next(
        (text for rank, key in new if (text := group_causes.crossed(situation, rank, key))), ""
    )


def _end_trial(group: GroupManager, *, whole: bool, in_order: bool) -> tuple[list[str], list[str]]:
    """Collect forbidden calls, and leave a group behind that works.

    ``whole`` tells that every rank returned: else the group has been seen to already, unless the
    trial had left it before it failed. ``in_order`` tells that the group can be used if what is
    still on its way arrives.
    """
    cluster = group.cluster
    engines = [cluster.places[rank].engine for rank in cluster.free_ranks()]
    waits = whole and group.join and in_order
    ends = cluster.remote_call(dict.fromkeys(engines, remote_calls.end_trial(waits)))
    forbidden = sorted({name for end in ends for name in end.forbidden})
    if not group.join or all(end.arrived if whole else end.joined for end in ends):
        return forbidden, []
    group.broken = True
    group.repair()
    kept = whole and all(end.same_group for end in ends)
    return forbidden, [diagnosis.GROUP_ANEW if kept else GROUP_CHANGED]


def _failure(
    outcome: Outcome, cluster: RankCluster, ending: diagnosis.Ending, exercise: Exercise
) -> Failed | None:
    """Return what stands in the place of a rank's value, None if it has one."""
    rank = outcome.rank
    if rank in cluster.deaths:
        return Failed("Died", describe_exit(cluster.deaths[rank]))
    if outcome.error is None and outcome.value is not None:
        return None
    if ending.kind == "timeout":
        lines = () if outcome.error is None else _own_lines(outcome.error[2])
        return Failed("TimedOut", f"stopped after {exercise.seconds:g} s", lines)
    if outcome.error is None:
        return Failed("Stopped", "did not return")
    name, message, _ = outcome.error
    if rank in ending.freed and ending.kind == "deadlock":
        return Failed("Deadlock", "waited in vain")
    if ending.kind and diagnosis.is_consequence(outcome.error):
        return Failed("Stopped", "waited for a rank that failed")
    return Failed(name, message, _own_lines(outcome.error[2]))


def _own_lines(formatted: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of the learner's code that a formatted error points at."""
    return tuple(
        match[1]
        for line in formatted
        for text in line.split("\n")
        if (match := _POINTED.match(text))
    )
