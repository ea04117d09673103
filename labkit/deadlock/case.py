"""Hold a deadlock with what is known around it: what causes are found in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..wire.samples import Entry, Sample, Wait
from .exit_reason import ExitReason
from .needs import Situation, needs

#: Waits for collectives: in the call, or where the GPU's work is waited for.
COLLECTIVE = ("collective", "device")


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


def as_message(wait: Wait) -> Wait:
    """Return a wait for a GPU that has only messages to finish as one for the oldest of them."""
    if wait.kind != "device" or wait.options or not wait.messages:
        return wait
    oldest = wait.messages[0]
    return replace(wait, kind=oldest.kind, peer=oldest.peer, tag=oldest.tag)
