"""How much time there is left."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

#: Seconds for what is under way to end after the time is over, and for the report.
CLOSING = 20.0


@dataclass(frozen=True)
class Budget:
    """The time that everything together may take."""

    seconds: float
    began: float = field(default_factory=time.time)  #: as time.time() says it

    def left(self) -> float:
        """Return the seconds that whatever begins now may take, at least 0."""
        return max(0.0, self.began + self.seconds - CLOSING - time.time())
