"""Compare the sends with the receives of a cell, from what each rank has told at its end.

Neither gloo nor NCCL sends the size or type of a tensor along: what comes is taken for what is
there. Gloo aborts a rank that gets more than its tensor holds, and says nothing of less.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..wire import protocol
from ..wire.protocol import Receive
from ..wire.samples import Group, GroupKey, MessageKey, Sample, Size
from .cluster import RankCluster

#: Types by what holds the most, and the method that turns a tensor into it; where float16 meets
#: bfloat16, float32 holds both.
CONVERSIONS = {
    "complex128": "to(torch.complex128)", "complex64": "to(torch.complex64)",
    "float64": "double()", "float32": "float()", "float16": "float()", "bfloat16": "float()",
    "int64": "long()", "int32": "int()", "int16": "short()", "int8": "short()",
}  # fmt: skip
#: Complex types and what ``torch.view_as_real`` makes of them.
PARTS = {"complex64": "float32", "complex128": "float64"}


class Message(NamedTuple):
    """A message from one rank to another; the ranks are the lab's."""

    sender: int
    receiver: int
    elements: int
    type: str  #: "float32"
    bytes: int
    tag: int  #: -1 on NCCL, which has none
    where: str  #: "In[7], line 3"


def list_messages(samples: Mapping[int, Sample], *, well: bool) -> list[Message]:
    """List what was sent, by the time of each send.

    ``samples``: Of the ranks that have posted messages in the cell, with what ``sizes`` holds of
    them. ``well``: Whether the cell went well. If not, a send whose receive nobody has posted was
    without success.
    """
    found = []
    for rank, sample in samples.items():
        for key, group in sample.groups.items():
            for message, size in group.sizes.items():
                kind, peer, tag, _ = message
                if kind == "send" and peer >= 0 and (well or _met(samples, rank, key, message)):
                    told = Message(
                        rank, peer, size.elements, size.type, count_bytes(size), tag, size.where
                    )
                    found.append((size.posted, told))
    return [message for _, message in sorted(found, key=lambda one: one[0])]


def _met(samples: Mapping[int, Sample], sender: int, key: GroupKey, sent: MessageKey) -> bool:
    """Return whether a receive for a message was posted."""
    _, receiver, tag, number = sent
    if receiver not in samples or key not in samples[receiver].groups:
        return False
    posted = samples[receiver].groups[key].posted
    return posted.get(("recv", sender, tag), 0) >= number or bool(posted.get(("recv_any", -1, tag)))


# -- a message that was too long: gloo aborts the rank that receives it ---------------------------


def find_too_long(cluster: RankCluster, samples: Mapping[int, Sample]) -> str:
    """Return which send and which receive did not fit, "" if that is not known.

    ``samples`` are of ranks that live; the dead have left what they received last.
    """
    if not any(group.sizes for sample in samples.values() for group in sample.groups.values()):
        return ""  # nobody has sent anything
    folder = cluster.launcher.record_folder()
    aborted = [r for r, code in cluster.deaths.items() if code == -signal.SIGABRT]
    for rank in aborted if folder else ():
        receives = protocol.read_receives(protocol.receives_path(folder, cluster.places[rank].pid))
        # One from any rank took what the numbers give to another one.
        from_any = any(r.peer < 0 for r in receives)
        for receive in receives[:1] if from_any else receives:
            for sender, sent in _sent_to(rank, receive, samples):
                size = sent.get(max(sent, default=-1) if from_any else receive.number)
                if size is not None and count_bytes(size) > count_bytes(receive):
                    return (
                        "Cause: gloo aborts a rank that gets more than its tensor holds. "
                        f"Rank {sender} sent {_describe(size)}; rank {rank} had room for "
                        f"{_describe(receive)}."
                    )
    return ""


def _sent_to(
    rank: int, receive: Receive, samples: Mapping[int, Sample]
) -> Iterator[tuple[int, dict[int, Size]]]:
    """List per sender and group what went to a rank with a receive's tag, by number."""
    for sender, sample in samples.items():
        for group in sample.groups.values() if receive.peer in (sender, -1) else ():
            end = ("send", rank, receive.tag)
            yield sender, {key[3]: size for key, size in group.sizes.items() if key[:3] == end}


def _describe(size: Size | Receive) -> str:
    """Return what one end of a message brings or has room for, and where."""
    place = ": ".join(filter(None, (size.where, size.line)))
    return f"{_count(size)} of {size.type}" + (f" at {place}" if place else "")


def _count(size: Size | Receive) -> str:
    return "1 element" if size.elements == 1 else f"{size.elements:,} elements"


# -- messages that were too short, or of another type: gloo says nothing --------------------------


def find_too_short(samples: Mapping[int, Sample]) -> dict[int, list[str]]:
    """Warn of receives whose tensors were filled in part, or with bytes of another type, by the
    rank that received.

    Each line with such a receive is named once. A receive is compared where it is certain which
    send it met: where some came from any rank, only if a single rank has sent with that tag.
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
    """Return what is wrong with a message as Python's own warnings are shown, "" if nothing is."""
    place, origin = (f" ({size.where})" if size.where else "" for size in (room, sent))
    if count_bytes(sent) >= count_bytes(room):
        if may_be_meant(sent.type, room.type) or not sent.elements:
            return ""
        return (
            f"UserWarning{place}: rank {sender} sent {_count(sent)} of {sent.type}{origin}, and "
            f"this receive takes their bytes for {room.type}, so the numbers are wrong. "
            f"Receive into {sent.type}, and convert afterwards."
        )
    if sent.type == room.type:
        than = f"fewer than the {room.elements:,}"
    else:
        than = f"fewer bytes than the {room.elements:,} of {room.type}"
    return (
        f"UserWarning{place}: rank {sender} sent {_count(sent)} of {sent.type}{origin}, {than} "
        "of this receive: the rest keeps its old values."
    )


# -- types whose bytes mean the same, and those that only have as many ----------------------------


def count_bytes(size: Size | Receive) -> int:
    """Return how many bytes the elements of one end of a message take."""
    return size.elements * width(size.type)


def width(kind: str) -> int:
    """Return how many bytes an element of a type has: ``bfloat16`` 2, ``complex64`` 8, bool 1."""
    bits = re.search(r"\d+", kind)
    return int(bits[0]) // 8 if bits else 1


def may_be_meant(one: str, other: str, *, copied: bool = True) -> bool:
    """Return whether a tensor of one type may be given on purpose where another rank has another.

    ``copied``: bytes arrive as they are; else they are added up, and uint8 stands for bool alone.

    >>> may_be_meant("bool", "uint8"), may_be_meant("int32", "float32")
    (True, False)
    >>> may_be_meant("uint8", "float32"), may_be_meant("uint8", "float32", copied=False)
    (True, False)
    """
    pair = {one, other}
    if len(pair) == 1 or pair == {"bool", "uint8"}:
        return True
    if any(PARTS.get(kind) in pair for kind in pair):
        return True
    # Bytes by intent: of a float8, which gloo does not know, or as many as something larger has.
    (rest, *_) = pair - {"uint8"}
    return copied and "uint8" in pair and (rest.startswith("float8") or width(rest) > 1)


def conversion(kinds: Iterable[str]) -> str:
    """Return the call that turns a tensor into the type that holds the values of all: "float()"."""
    found = set(kinds)
    return next((method for kind, method in CONVERSIONS.items() if kind in found), "int()")
