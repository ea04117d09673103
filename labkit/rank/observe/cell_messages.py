"""Tell the notebook at the end of a cell which messages this rank has posted in it.

Gloo takes a message that is shorter than its receive's tensor for a complete one. Both ends are
known in the notebook only, which would have to ask for them after every cell; so a rank that has
posted some says so by itself, and all others cost nothing.
"""

from __future__ import annotations

from collections import Counter

import torch.distributed as dist

from ...wire.encoding import encode
from ...wire.protocol import MESSAGES
from ...wire.samples import Group, Sample
from .. import tracebacks
from ..torch_internals import groups as torch_groups
from . import call_details, flight_recorder, p2p_record


def begin() -> None:
    """Forget that messages were posted before."""
    call_details.fresh.clear()


def publish() -> None:
    """Display the messages since ``begin`` for the notebook, if there are any."""
    if call_details.fresh and dist.is_initialized():
        told = Sample(dist.get_rank(), "idle", groups=_groups())
        tracebacks.get_shell().display_pub.publish({MESSAGES: encode(told)})
        begin()


def _groups() -> dict[tuple[str, tuple[int, ...]], Group]:
    """Describe the newest messages of each group, and how many were posted with their tags."""
    found = {}
    for group, ranks in torch_groups.members().items():
        if not (new := call_details.fresh.get(group, 0)):
            continue
        key = flight_recorder.key(group, ranks)
        members = (*key[1], -1)  # so that number -1, any rank, stays -1
        sizes = call_details.sizes_of(group, new)
        tags = {tag for _, _, tag, _ in sizes}
        posted = p2p_record.posted.get(group) or Counter()
        found[key] = Group(
            key=key,
            last=-1,
            entries={},
            posted={(k, members[p], t): n for (k, p, t), n in posted.items() if t in tags},
            barriers=0,
            sizes={(k, members[p], t, n): size for (k, p, t, n), size in sizes.items()},
        )
    return found
