"""Name the likely cause of a deadlock in one sentence, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..base.rank_names import label
from ..wire.protocol import FROM_ROOT
from ..wire.samples import Entry, GroupKey, Sample, Wait
from .exit_reason import ENDED, NOT_ASKED, ExitReason
from .in_step import unmatched
from .needs import SAME_SIZE, Situation, crossed_with, groups_of, needs

#: Waits for collectives: in the call, or where the GPU's work is waited for.
COLLECTIVE = ("collective", "device")
#: Names of calls, as ranks give them: a backward in which DDP's reducer waits, and another one.
DDP_BACKWARD, BACKWARDS = "backward", ("backward()", "grad()")
#: DDP's forward waits for the other ranks where the model has buffers; evaluation does too.
DDP_FORWARD = "DistributedDataParallel.forward"
DDP_EVALUATION = "DistributedDataParallel.forward in evaluation"


@dataclass(frozen=True)
class Case:
    """A deadlock, with what is known around it."""

    situation: Situation
    stuck: frozenset[int]
    exit_reasons: Mapping[int, ExitReason] = field(
        default_factory=dict
    )  #: of each rank that is gone
    doubts: tuple[str, ...] = ()  #: why it is only suspected; none if it is proved

    @property
    def waits(self) -> dict[int, Wait]:
        """What each stuck rank waits for, in rank order."""
        return {rank: _shown(self.situation.samples[rank]) for rank in sorted(self.stuck)}

    def absent(self) -> set[int]:
        """Ranks that somebody waits for and that are not waiting themselves."""
        missing: set[int] = set()
        for rank, wait in self.waits.items():
            for need in needs(self.situation, rank, wait):
                missing |= need.missing
        return missing & (self.situation.gone - self.stuck)

    def entry(self, rank: int) -> Entry | None:
        """Return the collective that a stuck rank waits in."""
        wait = self.waits[rank]
        if wait.kind not in COLLECTIVE or not wait.options:
            return None
        key, number = wait.options[0]
        group = self.situation.group(rank, key)
        return group.entries.get(number) if group else None


def _shown(sample: Sample) -> Wait:
    """Return what a rank waits for: of one that waits for its own threads, what those wait for."""
    wait = sample.wait
    assert wait is not None
    if wait.kind != "thread":
        return wait
    held = (i.wait for i in sample.issuers if i.wait is not None and i.wait.kind != "thread")
    inner = next(held, None)
    if inner is None:
        return wait
    place = (inner.where, inner.line) if inner.where else (wait.where, wait.line)
    return replace(inner, where=place[0], line=place[1], seconds=wait.seconds)


def likely_cause(case: Case) -> str:
    """Return the first explanation that fits."""
    return next(text for explain in EXPLANATIONS if (text := explain(case)))


def _crossed(case: Case) -> str:
    """Explain groups of the same name with different members: each rank has made only its own."""
    keys = (
        (rank, key)
        for rank, wait in case.waits.items()
        for key in filter(None, [wait.making, *(key for key, _ in wait.options)])
    )
    return next((text for rank, key in keys if (text := crossed(case.situation, rank, key))), "")


def crossed(s: Situation, rank: int, key: GroupKey) -> str:
    """Return which rank has made another group under the name of one that a rank has made, "" if
    none has."""
    others = sorted(crossed_with(s, rank, key))
    if not others:
        return ""
    its = next(k for k in sorted(groups_of(s.samples[others[0]])) if k[0] == key[0])
    (first, mine), (second, theirs) = sorted([(rank, key), (others[0], its)])
    return (
        f"Rank {first} made the group of {label(mine[1])} where rank {second} made that of "
        f"{label(theirs[1])}: every rank has to call new_group for every group, in the same "
        "order, also for those that it is not a member of."
    )


def _new_group(case: Case) -> str:
    waits = [w for w in case.waits.values() if w.kind == "new_group"]
    if not waits:
        return ""
    if any(w.number < 0 for w in waits):
        return (
            "With use_local_synchronization=True, new_group waits for the members of the group: "
            "each of them has to call it, with the same ranks."
        )
    if len({w.making for w in waits}) > 1:
        return "They make different groups. Every rank has to make the same groups in one order."
    return (
        "new_group has to be called by every rank of the lab, also by those that are not "
        "in the new group, and in the same order."
    )


def _init(case: Case) -> str:
    waits = {r: w for r, w in case.waits.items() if w.kind == "init"}
    if not waits:
        return ""
    if len({w.at for w in waits.values() if w.at}) > 1:
        places = "; ".join(f"{label([r])} {w.at}" for r, w in sorted(waits.items()) if w.at)
        return f"They meet at different addresses: {places}. All of a group need the same one."
    numbers = [w.me for w in waits.values() if w.me >= 0]
    if len(set(numbers)) < len(numbers):
        same = sorted(r for r, w in waits.items() if numbers.count(w.me) > 1)
        number = waits[same[0]].me
        return f"{label(same).capitalize()} all gave rank={number}. Each needs its own number."
    sizes = _world_sizes(case)
    if len(sizes) > 1:
        said = ", ".join(f"{size} on {label(ranks)}" for size, ranks in sorted(sizes.items()))
        return f"The values of world_size differ: {said}. All ranks of a group need the same one."
    if max(sizes, default=0) > case.situation.size:
        return (
            f"world_size={max(sizes)} is more than the {case.situation.size} ranks that are "
            "here, so init_process_group waits for ranks that do not exist."
        )
    return "init_process_group returns when all world_size ranks have called it."


def _world_sizes(case: Case) -> dict[int, list[int]]:
    """Return the ranks by the world size that they gave or, where they have formed their group
    already, by the size of that."""
    found: dict[int, list[int]] = {}
    for rank, sample in sorted(case.situation.samples.items()):
        wait = case.waits.get(rank)
        size = wait.size if wait is not None and wait.kind == "init" else 0
        if sample.joined and not size:
            size = max((len(key[1]) for key in sample.groups), default=0)
        if size > 0:
            found.setdefault(size, []).append(rank)
    return found


def _store(case: Case) -> str:
    keys = sorted({w.at for w in case.waits.values() if w.kind == "store"})
    return f"Nobody sets the key {keys[0]}, and get and wait need it." if keys else ""


def _messages(case: Case) -> str:
    """Explain deadlocks of sends and receives alone."""
    waits = {rank: _as_message(wait) for rank, wait in case.waits.items()}
    kinds = {w.kind for w in waits.values()}
    if not kinds or not kinds <= {"send", "recv", "recv_any"}:
        return ""
    for rank, wait in waits.items():
        text = _tags(waits, rank, wait)
        if text:
            return text
    if absent := case.absent():
        what = " and ".join(
            text
            for kind, text in (("send", "a receive"), ("recv", "a send"), ("recv_any", "a send"))
            if kind in kinds and not (kind == "recv_any" and "recv" in kinds)
        )
        return (
            f"Every send needs one receive and every receive one send: {what} of "
            f"{label(sorted(absent))} is missing (or goes to another rank)."
            f"{_astray(case.situation)}"
        )
    left = unmatched(case.situation.samples).values()  # also what is not waited for yet
    if kinds == {"send"} and not any(count < 0 for count in left):
        return (
            "Every one of them sends before it receives, and a send is over only when its "
            "message is taken. Let one side receive first, or use isend or batch_isend_irecv."
        )
    if "send" not in kinds and not any(count > 0 for count in left):
        return "Every one of them waits to receive before it sends. One side has to send first."
    return (
        "The sends and receives do not pair up: each send needs a receive on the rank that it "
        "names, with the same tag and the same size, and that names the sender."
        f"{_astray(case.situation)}"
    )


def _astray(s: Situation) -> str:
    """Return which send and which receive name one rank in common, but not each other: one of the
    two ranks is to blame, which need not be the one that did not come."""
    left = sorted(unmatched(s.samples).items())
    sends = [(sender, to) for (_, sender, to, _), count in left if count > 0]
    receives = [(to, sender) for (_, sender, to, _), count in left if count < 0]
    for a, b in sends:
        for c, d in receives:
            if (a == d) != (b == c):
                return (
                    f" Rank {a} sends to rank {b}, and rank {c} receives from rank {d}: one of "
                    "them may name the wrong rank."
                )
    return ""


def _as_message(wait: Wait) -> Wait:
    """Return a wait for a GPU that has only messages to finish as one for the oldest of them."""
    if wait.kind != "device" or wait.options or not wait.messages:
        return wait
    oldest = wait.messages[0]
    return replace(wait, kind=oldest.kind, peer=oldest.peer, tag=oldest.tag)


def _tags(waits: Mapping[int, Wait], rank: int, wait: Wait) -> str:
    other = waits.get(wait.peer)
    opposite = {"send": ("recv", "recv_any"), "recv": ("send",)}.get(wait.kind, ())
    if other is None or other.kind not in opposite or other.tag == wait.tag:
        return ""
    if other.peer not in (rank, -1):
        return ""
    return (
        f"The tags differ: rank {rank} waits in {wait.kind} with tag {wait.tag}, "
        f"rank {wait.peer} in {other.kind} with tag {other.tag}."
    )


def _mixed(case: Case) -> str:
    kinds = {_as_message(w).kind for w in case.waits.values()}
    if kinds & {*COLLECTIVE} and kinds & {"send", "recv", "recv_any"} and not case.absent():
        return (
            "Some ranks wait in a collective, others for a message from them. The calls have to "
            "come in an order that suits both sides."
        )
    return ""


def _threads(case: Case) -> str:
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


def _past(case: Case) -> str:
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


def _disagreement(case: Case) -> str:
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


def _two_groups(case: Case) -> str:
    keys = {w.options[0][0] for w in case.waits.values() if w.kind in COLLECTIVE and w.options}
    if len(keys) > 1 and not case.absent():
        return (
            "They are in collectives of different groups. Ranks that share groups have to use "
            "them in the same order."
        )
    return ""


def _not_asked(case: Case) -> str:
    absent = case.absent()
    left_out = sorted(r for r in absent if case.exit_reasons.get(r) == NOT_ASKED)
    if not left_out:
        return ""
    return (
        f"The cell ran without {label(left_out)}, but the group has them as members: run it on "
        "every rank of the group, or use a group of these ranks only."
    )


def _uneven(case: Case) -> str:
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


def _condition(case: Case) -> str:
    absent = sorted(case.absent())
    if not absent:
        return ""
    raised = [r for r in absent if case.exit_reasons.get(r, ENDED).kind == "raised"]
    if raised:
        return f"{label(raised).capitalize()} stopped at an error before this call."
    dead = [r for r in absent if r in case.situation.dead]
    if dead:
        return f"The process of {label(dead)} is gone."
    return (
        f"The call stands under a condition (an if on the rank, an early return, a continue) "
        f"that {label(absent)} did not meet. Every rank of a group has to make it."
    )


def _otherwise(case: Case) -> str:
    return (
        "Every rank waits for another one. The ranks of a group have to make the same calls, in "
        "the same order, with tensors of the same shape."
    )


EXPLANATIONS: tuple[Callable[[Case], str], ...] = (
    _crossed,
    _new_group,
    _init,
    _store,
    _not_asked,
    _messages,
    _threads,
    _past,
    _disagreement,
    _mixed,
    _two_groups,
    _uneven,
    _condition,
    _otherwise,
)
