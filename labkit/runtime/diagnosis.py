"""Turn what went wrong on the ranks into one error: the true cause first, and only once."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..base import rank_names
from ..base.errors import (
    Deadlock,
    Interrupted,
    RankDied,
    RankError,
    SuspectedDeadlock,
    red,
    wrapped,
)
from ..base.rank_names import label
from ..deadlock.case import Case
from ..deadlock.cause import likely_cause
from ..deadlock.message import (
    headline,
    message_lines,
    suspicion,
    tensors,
    what_may_come,
    who_is_absent,
    who_waits,
)
from ..wire import texts
from ..wire.samples import Sample
from ..wire.state import describe_exit
from . import error_texts
from .cluster import RankCluster
from .error_texts import Raised
from .messages import find_too_long

#: Said after an error that left the ranks out of step.
GROUP_ANEW = (
    "The ranks were out of step, so labkit formed the process group anew. Make sub-groups and DDP "
    "models again."
)

#: Said after torch's error about a second default group.
JOINED = (
    "The lab's ranks are in a process group already. For a program that forms its own, start the "
    "lab with labkit.start({}, join=False), or call dist.destroy_process_group() before."
)


@dataclass
class Ending:
    """How something on the ranks ended: by itself (""), or what came between."""

    kind: Literal["", "deadlock", "suspected", "died", "interrupted", "timeout"] = ""
    freed: Sequence[int] = ()  #: were blocked; what they raised is our doing
    still: Sequence[int] = field(default_factory=tuple)  #: did not end
    in_c: Mapping[int, str] = field(default_factory=dict)  #: of those: where, if in C
    case: Case | None = None  #: of a deadlock, or what was suspected when something else ended it
    hint: str = ""  #: the likely cause of a death
    moment: float = field(default_factory=time.time)  #: when it was declared
    repaired: bool = False  #: the process group was formed again


def judge(
    cluster: RankCluster,
    join: bool,
    dead: Sequence[int],
    errors: Mapping[int, Raised],
    ending: Ending,
) -> RankError | Interrupted | None:
    """Return the error to raise, None if all went well; ``join``: the process group is the lab's.

    Deaths come first, then true errors, then deadlocks; and before all of them, that the learner
    or a time limit stopped it.
    """
    if ending.kind == "interrupted":
        return Interrupted(*_stopped(join, errors, ending, "Interrupted: the cell was stopped."))
    if ending.kind == "timeout":
        return RankError(*_stopped(join, errors, ending, "TimedOut: its time was up."))
    case = ending.case if ending.kind in ("deadlock", "suspected") else None
    # A rank that waits for its GPU at the end of its cell may have raised before.
    held = {} if case is None else case.waits
    ended = {r for r, w in held.items() if w.kind == "device" and not w.partial}
    freed = set(ending.freed) - ended
    own = {r: e for r, e in errors.items() if r not in freed and r not in dead}
    if dead or case is not None:
        own = {r: e for r, e in own.items() if not is_consequence(e)}
    if dead:
        return RankDied(*died(cluster, dead, own, ending))
    if own:
        summary, blocks = error_texts.error_texts(own)
        if join and any(texts.TWICE in message for _, message, _ in own.values()):
            hint = JOINED.format(cluster.size)
            summary, blocks = f"{summary}\n{hint}", [*blocks, hint]
        summary, blocks = error_texts.add_slips(cluster, own, summary, blocks)
        if case is not None:
            text = [*_waited(case, own), *what_may_come(case), *what_was_done(join, ending)]
            summary, blocks = "\n".join([summary, *text]), [*blocks, "\n".join(text)]
        elif ending.repaired and join and not _are_of_ended_groups(own):
            summary, blocks = f"{summary}\n{GROUP_ANEW}", [*blocks, GROUP_ANEW]
        return RankError(summary, blocks)
    if case is not None:
        waits = [*who_waits(case), *who_is_absent(case)]
        done = what_was_done(join, ending)
        if case.doubts:
            waits += what_may_come(case)
            return SuspectedDeadlock(headline(case), waits, likely_cause(case), done)
        return Deadlock(headline(case), waits, likely_cause(case), done)
    return None


def _are_of_ended_groups(errors: Mapping[int, Raised]) -> bool:
    """Return whether all errors are of a group of before: the ranks are in step in the one of
    now."""
    return all(texts.BELONGS in message for _, message, _ in errors.values())


def stopped_too_late() -> Interrupted:
    """Return the error for a stop that came when every rank had ended the cell."""
    text = "every rank had ended the cell when it was stopped."
    return Interrupted(text, [f"{red('Interrupted')}: {text}"])


def _stopped(
    join: bool, errors: Mapping[int, Raised], ending: Ending, why: str
) -> tuple[str, list[str]]:
    """Return summary and blocks after a stop: where it found which ranks."""
    stopped = {r: _place(e) if is_consequence(e) else e for r, e in errors.items()}
    summary, blocks = error_texts.error_texts(stopped)
    done = what_was_done(join, ending)
    if ending.case is not None:
        done = [*suspicion(ending.case), *done]
    name, _, rest = why.partition(":")
    head = [f"{red(name)}:{rest}"]
    tail = ["\n".join(map(wrapped, done))] if done else []
    return "\n".join(filter(None, [summary, *done])), [*head, *blocks, *tail]


def _place(error: Raised) -> Raised:
    """Return the place alone of an error that only the stop has caused."""
    _, _, lines = error
    places = [line for line in lines[1:] if not line.startswith(("  raised in", "  caused by"))]
    return "stopped", "", ["stopped", *places]


#: What usually ends a process by these signals.
CAUSES = {
    signal.SIGKILL: "Cause: it was killed from outside (kill -9), or the system ran out of memory.",
    signal.SIGSEGV: "Cause: a bad memory access in C or C++ code.",
    signal.SIGBUS: "Cause: a bad memory access in C or C++ code, or no room left in /dev/shm.",
}


def death_reason(
    cluster: RankCluster, samples: Mapping[int, Sample], *, earlier: bool = False
) -> str:
    """Explain how ranks ended, as far as their signal tells; ``samples`` are of the others.

    Gloo aborts a rank that gets more than its tensor holds. With ``earlier``, the last collectives
    may be those of a cell before, as in a check, whose answer need not make any.
    """
    codes = cluster.deaths.values()
    for signum, cause in CAUSES.items():
        if -signum in codes:
            return cause
    if -signal.SIGABRT not in codes:
        return ""
    if cause := find_too_long(cluster, samples):
        return cause
    last = {}
    for rank, sample in samples.items():
        # What is over, and is at no place of this request's calls, proves nothing then.
        entries = [
            e
            for key, g in sample.groups.items()
            for e in g.entries.values()
            if e.shapes and (not earlier or not e.done or (e.where, key[0]) in sample.places)
        ]
        if entries:
            last[rank] = f"{entries[-1].name} with {tensors(entries[-1])}"
    if not last:
        return ""
    calls = "; ".join(f"{label(ranks)} called {text}" for ranks, text in rank_names.fold(last))
    return (
        "Cause: gloo aborts a rank that gets more than its tensor holds, so the shapes or types "
        f"probably differ: {calls}."
    )


def without_torch_log(stderr: str) -> str:
    """Take out what torch logged on a rank that was freed: it describes our doing."""
    return texts.LOG.sub("", stderr)


def is_consequence(error: Raised) -> bool:
    """Return whether an error only says that a connection or the other end has gone."""
    name, message, _ = error
    return name == "KeyboardInterrupt" or bool(texts.CONSEQUENCE.search(message))


def _waited(case: Case, own: Mapping[int, Raised]) -> list[str]:
    """Sum up the ranks that waited for those that failed; tell all if it was not for those."""
    if not case.absent() & own.keys():
        return message_lines(case)
    ranks = sorted(case.stuck)
    places = sorted({f" in {w.where}" if w.where else "" for w in case.waits.values()})
    where = places[0] if len(places) == 1 else ""
    return [f"{label(ranks)} waited{where} for {label(sorted(case.absent()))}."]


def what_was_done(join: bool, ending: Ending) -> list[str]:
    """Return what labkit did about blocked ranks, and what is left to do."""
    lines = []
    text = f"labkit freed {label(ending.freed)} and" if ending.freed else "labkit"
    if ending.repaired and join:
        lines.append(
            f"{text} formed the process group anew. Variables are kept; make sub-groups and "
            "DDP models again."
        )
    elif ending.repaired:
        lines.append(
            f"{text} left the process group; variables are kept. Run the cell with "
            "init_process_group again."
        )
    elif ending.freed:
        lines.append(f"labkit freed {label(ending.freed)}; variables are kept.")
    if ending.still:
        still = list(ending.still)
        lines.append(
            f"{label(still)} did not return from the cell; {rank_names.how_to_replace(still)}."
        )
    for ranks, place in rank_names.fold(dict(ending.in_c)):
        one = len(ranks) == 1
        are, returns = ("is", "it returns") if one else ("are", "they return")
        where = f": {place}" if place else ""
        lines.append(
            f"{label(ranks)} {are} in C code, or in an import, and cannot be interrupted{where}. "
            f"If you wait until {returns}, the variables are kept."
        )
    return lines


def died(
    cluster: RankCluster,
    dead: Sequence[int],
    errors: Mapping[int, Raised] | None = None,
    ending: Ending | None = None,
) -> tuple[str, list[str]]:
    """Return summary and blocks for ranks whose process has ended."""
    how = rank_names.fold({rank: cluster.deaths[rank] for rank in dead})
    head = (
        "; ".join(f"{label(ranks)} ended with {describe_exit(code)}" for ranks, code in how) + "."
    )
    rest = []
    if ending and ending.hint:
        rest.append(ending.hint)
    if ending and ending.freed:
        were = "was" if len(ending.freed) == 1 else "were"
        rest.append(f"{label(ending.freed)} waited and {were} freed.")
    if ending and ending.still:
        rest.append(f"{label(ending.still)} did not return from the cell.")
    everyone = sorted({*cluster.deaths, *(ending.still if ending else ())})
    rest.append(cluster.launcher.remedy(everyone))
    summary, blocks = error_texts.error_texts(dict(errors or {}))
    lines = [f"{red('RankDied')}: {head}", *rest]
    return "\n".join(filter(None, [head, *rest, summary])), ["\n".join(lines), *blocks]
