"""Find the message that was too long for its receive: gloo aborts the rank that receives it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping

from ..wire import last_receives
from ..wire.last_receives import Receive
from ..wire.samples import Sample, Size
from .cluster import RankCluster
from .same_bytes import width


def find(cluster: RankCluster, samples: Mapping[int, Sample]) -> str:
    """Say which send and which receive did not fit, "" if that is not known.

    Parameters
    ----------
    samples
        Of ranks that live; the dead have left what they received last (``last_receives``).
    """
    if not any(group.sizes for sample in samples.values() for group in sample.groups.values()):
        return ""  # nobody has sent anything
    folder = cluster.launcher.record_folder()
    aborted = [r for r, code in cluster.deaths.items() if code == -signal.SIGABRT]
    for rank in aborted if folder else ():
        receives = last_receives.read(last_receives.path_of(folder, cluster.places[rank].pid))
        if any(r.peer < 0 for r in receives):  # it took what the numbers give to another one
            pairs = [(r, s, size) for r in receives[:1] for s, size in _newest(rank, r, samples)]
        else:
            pairs = [(r, s, size) for r in receives for s, size in _sends(rank, r, samples)]
        for receive, sender, size in pairs:
            if count_bytes(size) > count_bytes(receive):
                return (
                    "Cause: gloo aborts a rank that gets more than its tensor holds. "
                    f"Rank {sender} sent {_describe(size)}; rank {rank} had room for "
                    f"{_describe(receive)}."
                )
    return ""


def _sends(
    rank: int, receive: Receive, samples: Mapping[int, Sample]
) -> Iterator[tuple[int, Size]]:
    """List the sends that have the number of a receive."""
    for sender, own in _to(rank, receive, samples):
        if receive.peer == sender and receive.number in own:
            yield sender, own[receive.number]


def _newest(
    rank: int, receive: Receive, samples: Mapping[int, Sample]
) -> Iterator[tuple[int, Size]]:
    """List the newest sends that a receive may have met."""
    for sender, own in _to(rank, receive, samples):
        if own:
            yield sender, own[max(own)]


def _to(
    rank: int, receive: Receive, samples: Mapping[int, Sample]
) -> Iterator[tuple[int, dict[int, Size]]]:
    """List per sender and group what went to a rank with a receive's tag, by number."""
    for sender, sample in samples.items():
        for group in sample.groups.values() if receive.peer in (sender, -1) else ():
            yield (
                sender,
                {
                    number: size
                    for (kind, peer, tag, number), size in group.sizes.items()
                    if (kind, peer, tag) == ("send", rank, receive.tag)
                },
            )


def count_bytes(size: Size | Receive) -> int:
    """Return how many bytes the elements of one end of a message take."""
    return size.elements * width(size.type)


def _describe(size: Size | Receive) -> str:
    """Say what one end of a message brings or has room for, and where."""
    count = "1 element" if size.elements == 1 else f"{size.elements:,} elements"
    place = ": ".join(filter(None, (size.where, size.line)))
    return f"{count} of {size.type}" + (f" at {place}" if place else "")
