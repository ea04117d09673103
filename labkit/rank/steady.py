"""Tell the time on a rank whose program has frozen the clock, as tests of dates do.

``freezegun`` and its like put functions of their own in the place of those in ``time``; the event
loop in which labkit answers, and labkit itself, would stand still with the program.
"""

from __future__ import annotations

import time
from typing import Any


def now() -> float:
    """Return seconds that only grow, from an unknown moment on."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def since_1970() -> int:
    """Return nanoseconds since 1970, as torch's recorder counts them."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def keep(loop: Any) -> None:
    """Make an event loop of asyncio go by this clock."""
    loop.time = now
