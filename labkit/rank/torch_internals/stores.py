"""Know torch's stores: by which ranks meet, and pass small things on."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

Store = dist.Store
#: How long a ``TCPStore`` waits that is given no limit.
LIMIT = timedelta(minutes=5)


def limit(store: Store) -> timedelta | None:
    """Return how long a store waits for a key, None if torch does not say."""
    found = getattr(store, "timeout", None)
    return found if isinstance(found, timedelta) else None
