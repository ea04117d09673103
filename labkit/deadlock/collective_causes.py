"""Explain deadlocks in collectives: calls that differ, loops that do, threads."""

from __future__ import annotations

from ..base.rank_names import label
from ..wire.protocol import FROM_ROOT
from ..wire.samples import Entry, Wait
from .case import COLLECTIVE, Case
from .exit_reason import ENDED
from .needs import SAME_SIZE

#: Names of calls, as ranks give them: a backward in which DDP's reducer waits, and another one.
DDP_BACKWARD, BACKWARDS = "backward", ("backward()", "grad()")
#: DDP's forward waits for the other ranks where the model has buffers; evaluation does too.
DDP_FORWARD = "DistributedDataParallel.forward"
DDP_EVALUATION = "DistributedDataParallel.forward in evaluation"


def threads(case: Case) -> str:
    """Explain two threads of one rank that call collectives of one group."""
    for rank, wait in case.waits.items():
        sample = case.situation.samples[rank]
        if wait.kind not in COLLECTIVE or sample.wait is None or sample.wait.kind == "thread":
            continue
        used = {key for key, _ in wait.options}
        for issuer in sample.issuers:
            other = issuer.wait
            if other is None or other.kind != "collective":
                continue
            shared = [option for option in other.options if option[0] in used]
            if shared and shared[0] not in wait.options:
                group = case.situation.group(rank, shared[0][0])
                entry = group.entries.get(shared[0][1]) if group else None
                does = f" of {other.call}" if other.call not in ("", "wait") else ""
                return (
                    f"Two threads of rank {rank} call collectives of the same group, in an order "
                    f"that differs from rank to rank: another thread than the main one is in "
                    f"{entry.name if entry else 'a collective'}{does}. Give that thread a group of "
                    "its own (dcp.async_save takes process_group=dist.new_group())."
                )
    return ""


def past_a_loop(case: Case) -> str:
    """Explain ranks that have left a loop, and whose next call meets one inside the loop of the
    others."""
    for ranks in map(list, _by_number(case)):
        for inside in ranks:
            wait = case.waits[inside]
            beyond = [r for r in ranks if _is_past(case, r, wait)]
            behind = [r for r in ranks if _is_same(case.waits[r], wait)]
            if beyond and sorted(beyond + behind) == sorted(ranks):
                return _left(case, behind, beyond)
    return ""


def _is_same(one: Wait, other: Wait) -> bool:
    """Return whether two ranks wait in the same call of the program."""
    return (one.call, one.where) == (other.call, other.where)


def _is_past(case: Case, rank: int, wait: Wait) -> bool:
    """Return whether a rank waits elsewhere, and has been where another one waits."""
    own = case.waits[rank]
    if _is_same(own, wait) or own.call in (DDP_BACKWARD, DDP_FORWARD, DDP_EVALUATION):
        return False
    if wait.call in (DDP_BACKWARD, DDP_FORWARD, DDP_EVALUATION):
        return True  # the places of what C++ issues are not known
    places = {(wait.where, key[0]) for key, _ in wait.options}
    mine = {(own.where, key[0]) for key, _ in own.options}
    samples = case.situation.samples
    behind = next(r for r, w in case.waits.items() if w == wait)
    return bool(samples[rank].places & places) and not samples[behind].places & mine


def _left(case: Case, behind: list[int], beyond: list[int]) -> str:
    wait = case.waits[behind[0]]
    wheres = sorted({case.waits[r].where for r in beyond} - {""})
    who = f"{label(behind).capitalize()} {_be(behind)}"
    past = f"{label(beyond)} {_be(beyond)} past it"
    past += f", at {wheres[0]}" if len(wheres) == 1 else ""
    if wait.call == DDP_EVALUATION:
        return f"{who} in the model's forward, {past}. {_ALONE}"
    if wait.call in (DDP_BACKWARD, DDP_FORWARD):
        part = "backward" if wait.call == DDP_BACKWARD else "forward"
        it = "it" if len(beyond) == 1 else "they"
        return (
            f"{who} in DDP's {part}, {past}: {it} made fewer training steps, or a call that the "
            "others do not make. DDP needs the same number of batches on every rank "
            "(DistributedSampler, drop_last or model.join())."
        )
    inside = f" at {wait.where}" if wait.where else ""
    return (
        f"{who} still{inside}, {past}: a loop is shorter there (uneven data?), or a condition was "
        "not met each time. Every rank has to make the same number of calls."
    )


def _be(ranks: list[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


#: Said of the evaluation of a DDP model on some ranks.
_ALONE = (
    "The forward of a DDP model with buffers (BatchNorm) is a collective: to evaluate on one rank "
    "alone, call model.module there."
)


def _by_number(case: Case) -> list[dict[int, Entry]]:
    """Return the collectives that ranks wait in, those with one number of a group together."""
    found: dict[object, dict[int, Entry]] = {}
    for rank, wait in case.waits.items():
        if (entry := case.entry(rank)) is not None:
            found.setdefault(wait.options[0], {})[rank] = entry
    return list(found.values())


def _met(case: Case) -> list[dict[int, Entry]]:
    """Return the collectives that ranks wait in, with those of other ranks that have the same
    number: NCCL may have ended them there though they are not alike."""
    found = []
    for entries in _by_number(case):
        rank, entry = next(iter(entries.items()))
        key, _ = case.waits[rank].options[0]
        groups = {r: case.situation.group(r, key) for r in case.situation.samples}
        others = {r: g.entries[entry.number] for r, g in groups.items()
                  if g is not None and entry.number in g.entries}  # fmt: skip
        found.append(dict(sorted({**others, **entries}.items())))
    return found


def disagreement(case: Case) -> str:
    """Explain ranks that have different calls at the same number of a group."""
    for entries in _met(case):
        if len({e.name for e in entries.values()}) > 1:
            return (
                "They are in different collectives. Every rank of a group has to make the same "
                "calls in the same order."
            )
        first = next(iter(entries.values()))
        if len(entries) > 1 and first.name in SAME_SIZE:
            if len({e.elements for e in entries.values()}) > 1:
                return (
                    f"They call {first.name} with different shapes. Every rank has to bring a "
                    "tensor of the same size."
                )
            if len({e.types for e in entries.values()}) > 1:
                return f"They call {first.name} with different types of tensors."
        if not case.absent() and len({e.splits for e in entries.values()}) > 1:
            return (
                f"They call {first.name} with splits that do not fit: what one rank gives another "
                "has to be as much as that one takes from it."
            )
        waits = case.waits
        roots = {
            waits[r].root if e.root is None and r in waits else e.root for r, e in entries.items()
        }
        roots -= {None}
        if len(roots) > 1:
            end = "source" if first.name in FROM_ROOT else "destination"
            return f"They name different ranks as the {end} of {first.name}."
    return ""


def two_groups(case: Case) -> str:
    keys = {w.options[0][0] for w in case.waits.values() if w.kind in COLLECTIVE and w.options}
    if len(keys) > 1 and not case.absent():
        return (
            "They are in collectives of different groups. Ranks that share groups have to use "
            "them in the same order."
        )
    return ""


def uneven(case: Case) -> str:
    """Explain calls that some ranks make less often: in a shorter loop, or in another group."""
    absent = sorted(case.absent())
    if not absent:
        return ""
    who = label(absent).capitalize()
    calls = {w.call for w in case.waits.values()}
    if DDP_EVALUATION in calls:
        return f"{who} did not call the model here. {_ALONE}"
    if any(c == DDP_BACKWARD or c.startswith("DistributedDataParallel.") for c in calls):
        return (
            f"{who} made fewer training steps, or used fewer of the model's "
            "parameters. DDP needs the same number of batches on every rank (DistributedSampler, "
            "drop_last or model.join()), and find_unused_parameters=True if a step skips a layer."
        )
    places = {(w.where, key[0]) for w in case.waits.values() for key, _ in w.options}
    samples = case.situation.samples
    again = [r for r in absent if r in samples and samples[r].places & places]
    if again:
        why = "a loop is shorter there (uneven data?), or a condition was not met each time"
        if all(w.line.startswith(("if ", "elif ")) for w in case.waits.values()):
            why = "the condition before it was not met each time there"
        return (
            f"{label(again).capitalize()} made this call too, but fewer times: {why}. "
            "Every rank has to make the same number of calls."
        )
    ended = all(case.exit_reasons.get(r, ENDED).kind == ENDED.kind for r in absent)
    if ended and calls <= {*BACKWARDS}:
        return f"{sorted(calls)[0]} communicates too: {label(absent)} did not call it."
    lines = {where for where, _ in places}
    other = [r for r in absent if r in samples and lines & {p for p, _ in samples[r].places}]
    if other:
        return (
            f"{label(other).capitalize()} made this call in another group. Every member of a group "
            "has to make the group's calls."
        )
    return ""
