"""Find messages that were shorter than their receives, or of another type: gloo says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..wire.samples import Group, Sample, Size
from .same_bytes import conversion, may_be_meant
from .too_long import count_bytes


def find(samples: Mapping[int, Sample]) -> dict[int, list[str]]:
    """Warn of receives whose tensors were filled in part, or with bytes of another type, by the
    rank that received.

    Each line with such a receive is named once. A receive is compared where it is certain which
    send it met: where some came from any rank, only if a single rank has sent with that tag.

    Parameters
    ----------
    samples
        Of the ranks that have posted messages, with what ``sizes`` holds of them.
    """
    found: dict[int, dict[str, str]] = {}
    for rank, sample in samples.items():
        for key, group in sample.groups.items():
            others = {r: s.groups[key] for r, s in samples.items() if key in s.groups}
            for sender, sent, room in _pairs(rank, group, others):
                if text := _compare(sender, sent, room):
                    found.setdefault(rank, {}).setdefault(room.where, text)
    return {rank: list(warnings.values()) for rank, warnings in found.items()}


def _pairs(rank: int, own: Group, others: Mapping[int, Group]) -> Iterator[tuple[int, Size, Size]]:
    """List sender, send and receive of each message to a rank whose two ends are known."""
    for (kind, peer, tag, number), room in own.sizes.items():
        kinds = {k for k, _, t in own.posted if t == tag and k != "send"}
        if kinds != {kind}:  # a send; or receives from one rank and from any share what comes
            continue
        sender = peer if kind == "recv" else _only_sender(rank, tag, own, others)
        if sender in others:
            sent = others[sender].sizes.get(("send", rank, tag, number))
            if sent is not None:
                yield sender, sent, room


def _only_sender(rank: int, tag: int, own: Group, others: Mapping[int, Group]) -> int:
    """Return who has sent a rank all that it received with a tag from any; -1: not known."""
    end = ("send", rank, tag)
    senders = [r for r, group in others.items() if end in group.posted]
    if len(senders) != 1 or others[senders[0]].posted[end] != own.posted["recv_any", -1, tag]:
        return -1
    return senders[0]


def _compare(sender: int, sent: Size, room: Size) -> str:
    """Say what is wrong with a message as Python's own warnings are shown, "" if nothing is."""
    place, origin = (f" ({size.where})" if size.where else "" for size in (room, sent))
    elements = "1 element" if sent.elements == 1 else f"{sent.elements:,} elements"
    if count_bytes(sent) >= count_bytes(room):
        if may_be_meant(sent.type, room.type) or not sent.elements:
            return ""
        return (
            f"UserWarning{place}: rank {sender} sent {elements} of {sent.type}{origin}, and this "
            f"receive takes their bytes for {room.type}, so the numbers are wrong. Convert first: "
            f"x.{conversion([sent.type, room.type])}."
        )
    if sent.type == room.type:
        than = f"fewer than the {room.elements:,}"
    else:
        than = f"fewer bytes than the {room.elements:,} of {room.type}"
    return (
        f"UserWarning{place}: rank {sender} sent {elements} of {sent.type}{origin}, {than} "
        "of this receive: the rest keeps its old values."
    )
