"""Tell the notebook at the end of a cell which messages this rank has posted in it, and which
collectives it has issued.

Gloo takes a message that is shorter than its receive's tensor for a complete one, and the bytes of
any type for those of its own. Both ends are known in the notebook only, which would have to ask
for them after every cell; so a rank that has posted some says so by itself, and all others cost
nothing.
"""

from __future__ import annotations

from collections import Counter

import torch.distributed as dist

from ...wire.encoding import encode
from ...wire.protocol import COLLECTIVES, MESSAGES
from ...wire.samples import Group, Sample
from .. import quiet, tracebacks
from ..torch_internals import groups as torch_groups
from . import call_details, cell_collectives, flight_recorder, p2p_record


def begin() -> None:
    """Forget what was posted and issued before."""
    call_details.fresh.clear()
    cell_collectives.begin()


def publish() -> None:
    """Display the messages since ``begin`` for the notebook, if there are any; let the reply tell
    of the collectives: most cells have some, and a display would cost two more messages."""
    if not dist.is_initialized():
        return
    if call_details.fresh:
        told = Sample(dist.get_rank(), "idle", groups=_groups())
        tracebacks.get_shell().display_pub.publish({MESSAGES: encode(told)})
    if (calls := cell_collectives.collect()) is not None:
        quiet.told[COLLECTIVES] = encode(calls)
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
