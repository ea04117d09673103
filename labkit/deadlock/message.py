"""Tell a learner what happened: who waits in what and where, who never came, and why."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.rank_names import fold, label
from ..wire.samples import TYPES, Entry, GroupKey, Wait
from ..wire.state import describe_exit
from .case import Case
from .cause import likely_cause
from .exit_reason import ENDED, ExitReason


def message_lines(case: Case) -> list[str]:
    """Return the lines of the message: what is so, who waits where, the likely cause."""
    return [headline(case), *who_waits(case), *who_is_absent(case), f"Cause: {likely_cause(case)}"]


def headline(case: Case) -> str:
    """Return in one line who waits for whom."""
    stuck = sorted(case.stuck)
    if absent := sorted(case.absent()):
        exit_reasons = {case.exit_reasons.get(r, ENDED) for r in absent}
        did = _did(exit_reasons.pop(), absent) if len(exit_reasons) == 1 else "cannot come any more"
        return f"{label(stuck)} {_verb(stuck)} for {label(absent)}, which {did}."
    if len(stuck) == 1:
        return f"{label(stuck)} waits for something that cannot come."
    return f"{label(stuck)} wait for one another."


def who_waits(case: Case) -> list[str]:
    """Return one line for each place where stuck ranks wait."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for rank, wait in case.waits.items():
        what = describe(wait, case.entry(rank))
        if wait.issued:
            what += f", started at {wait.issued},"
        groups.setdefault((what, wait.where, wait.line), []).append(rank)
    lines = []
    for (what, where, line), ranks in groups.items():
        at = f" at {where}" if where else ""
        code = f":  {line}" if line else ""
        lines.append(f"  {label(ranks)} {_verb(ranks)} in {what}{at}{code}")
    return lines


def suspicion(case: Case) -> list[str]:
    """Return the lines of what is suspected: who waits where, what could still come, why."""
    lines = [f"Suspected deadlock: {headline(case)}", *who_waits(case), *who_is_absent(case)]
    return [*lines, *what_may_come(case), f"Cause, if it is one: {likely_cause(case)}"]


def what_may_come(case: Case) -> list[str]:
    """Return why a case is not proved: one line for each thing that labkit cannot see into."""
    return [f"  Not proved: {doubt}." for doubt in case.doubts]


def who_is_absent(case: Case) -> list[str]:
    """Return one line for each thing that absent ranks did instead, where they differ."""
    exit_reasons = fold({rank: case.exit_reasons.get(rank, ENDED) for rank in case.absent()})
    if len(exit_reasons) == 1:
        return []  # the first line has it
    return [f"  {label(ranks)} {_did(exit_reason, ranks)}" for ranks, exit_reason in exit_reasons]


def describe(wait: Wait, entry: Entry | None = None) -> str:
    """Put a wait into words: ``all_reduce (float32 [4], collective 3)``."""
    tag = f" with tag {wait.tag}" if wait.tag > 0 else ""
    if wait.kind == "send":
        text = f"send to rank {wait.peer}{tag}"
    elif wait.kind == "recv":
        text = f"recv from rank {wait.peer}{tag}"
    elif wait.kind == "recv_any":
        text = f"recv from any rank{tag}"
    elif wait.kind == "init":
        return "init_process_group"
    elif wait.kind == "new_group":
        return "new_group"
    elif wait.kind == "store":
        return f"a store, for the key {wait.at}"
    elif wait.kind == "thread":
        return "a wait for another thread of its own"
    elif wait.kind == "unknown":
        return wait.call if wait.call not in ("", "wait") else "something that labkit does not know"
    elif wait.kind == "device" and entry is None and wait.messages:
        end = wait.messages[0]
        return describe(Wait(end.kind, ((end.group, end.number),), end.peer, end.tag))
    elif entry is None:
        text = wait.kind if wait.kind == "monitored_barrier" else "a collective"
    else:
        known = entry.root if wait.root is None else wait.root
        root = "" if known is None else f", root {known}"
        size = f"{tensors(entry)}, " if entry.shapes else ""
        text = f"{entry.name} ({size}collective {entry.number}{root})"
    via = _via(wait, entry)
    return text + via + _group(wait.options[0][0] if wait.options else None)


def _via(wait: Wait, entry: Entry | None) -> str:
    """Name the call that the learner wrote where it is another one."""
    known = {wait.kind, entry.name if entry else "", "wait", "recv", "send", ""}
    return "" if wait.call in known else f" of {wait.call}"


def tensors(entry: Entry) -> str:
    """Put the tensors of a collective into words: ``float32 [4]``."""
    parts = [
        f"{TYPES.get(kind, kind)} {list(shape)}"
        for shape, kind in zip(entry.shapes, entry.types, strict=False)
    ]
    return parts[0] if len(parts) == 1 else f"{len(parts)} tensors"


def _group(key: GroupKey | None) -> str:
    name = "" if key is None else key[0].partition(" ")[0]  # without the name of a backend
    if key is None or name == "0":
        return ""
    return f" in group {name} of {label(key[1])}"


def _verb(ranks: Sequence[int]) -> str:
    return "wait" if len(ranks) > 1 else "waits"


def _did(exit_reason: ExitReason, ranks: Sequence[int]) -> str:
    """Return what ranks did instead of coming, all of them the same."""
    one = len(ranks) == 1
    has = "has" if one else "have"
    if exit_reason.kind == "ended":
        return f"{has} ended {'its' if one else 'their'} cell"
    if exit_reason.kind == "not asked":
        return f"{'was' if one else 'were'} not asked to run the cell"
    if exit_reason.kind == "raised":
        return f"{has} raised {exit_reason.error}"
    return f"ended with {describe_exit(exit_reason.code)}"
