"""List the messages that ranks have sent in a cell, from what each has told at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..wire.samples import GroupKey, MessageKey, Sample
from .too_long import count_bytes


class Message(NamedTuple):
    """A message from one rank to another; the ranks are the lab's."""

    sender: int
    receiver: int
    elements: int
    type: str  #: "float32"
    bytes: int
    tag: int  #: -1 on NCCL, which has none
    where: str  #: "In[7], line 3"


def find(samples: Mapping[int, Sample], *, well: bool) -> list[Message]:
    """List what was sent, by the time of each send.

    Parameters
    ----------
    samples
        Of the ranks that have posted messages in the cell, with what ``sizes`` holds of them.
    well
        Whether the cell went well. If not, a send whose receive nobody has posted was in vain.
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
    """Tell whether a receive for a message was posted."""
    _, receiver, tag, number = sent
    if receiver not in samples or key not in samples[receiver].groups:
        return False
    posted = samples[receiver].groups[key].posted
    return posted.get(("recv", sender, tag), 0) >= number or bool(posted.get(("recv_any", -1, tag)))
