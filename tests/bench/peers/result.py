"""Hold what was measured of one peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .measure import SAY_SECONDS, Left, Said, Session, middle
from .notebook import Seen
from .peer import Peer
from .processes import off_loopback


@dataclass
class Result:
    """One peer's row; what could not be measured has its reason in ``errors``."""

    peer: Peer
    versions: dict[str, str] = field(default_factory=dict)
    sessions: dict[int, list[Session]] = field(default_factory=dict)  #: by the number of ranks
    said: dict[str, list[Said]] = field(default_factory=dict)  #: by "skip" and "skip-end"
    left: Left | None = None
    seen: Seen | None = None  #: in a notebook
    errors: dict[str, str] = field(default_factory=dict)  #: by step: "install", "4 ranks", "skip" …

    def starts(self, ranks: int) -> list[float]:
        """Return the seconds of each start."""
        return [session.start for session in self.sessions.get(ranks, [])]

    def start_processors(self, ranks: int) -> list[float]:
        """Return the seconds that all processes ran for each start."""
        return [session.start_processors for session in self.sessions.get(ranks, [])]

    def calls(self, ranks: int) -> list[float]:
        """Return the seconds of each empty cell."""
        return [call for session in self.sessions.get(ranks, []) for call in session.calls]

    def call_processors(self, ranks: int) -> list[float]:
        """Return the seconds that all processes ran for one cell, one figure per session."""
        taken = [session.call_processors for session in self.sessions.get(ranks, [])]
        return [seconds for seconds in taken if seconds is not None]

    def heard(self, what: str = "skip") -> float | None:
        """Return the median of the seconds until something was said; None if nothing was."""
        seconds = [said.seconds for said in self.said.get(what, [])]
        return middle([s for s in seconds if s is not None]) if None not in seconds else None

    def words(self, what: str = "skip") -> str:
        """Return what was said; empty if nothing useful was."""
        return next((said.words for said in self.said.get(what, []) if said.seconds), "")

    def off_loopback(self) -> list[str] | None:
        """Return the addresses that other machines may reach, while four ranks are idle."""
        return None if self.left is None else off_loopback(self.left.listeners)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        medians = {
            f"{ranks} ranks": {
                "start s": middle(self.starts(ranks)),
                "start processors s": middle(self.start_processors(ranks)),
                "cell s": middle(self.calls(ranks)),
                "cell processors s": middle(self.call_processors(ranks)),
            }
            for ranks in self.sessions
        }
        skipped = {what: self.heard(what) for what in self.said}
        return {
            "name": self.peer.name,
            "label": self.peer.label,
            "way": self.peer.way,
            "cell": self.peer.calls,
            "ranks stay": self.peer.stays,
            "versions": self.versions,
            "medians": {**medians, "skipped collective s": skipped},
            "sessions": {str(n): [asdict(s) for s in taken] for n, taken in self.sessions.items()},
            "skipped collective": {w: [asdict(s) for s in said] for w, said in self.said.items()},
            "skipped collective limit s": SAY_SECONDS,
            "left": None
            if self.left is None
            else {**asdict(self.left), "listeners off loopback": self.off_loopback()},
            "notebook": None if self.seen is None else asdict(self.seen),
            "errors": self.errors,
        }


def find(results: Sequence[Result], name: str) -> Result | None:
    """Return the result of the peer of that name, if it was measured."""
    return next((result for result in results if result.peer.name == name), None)
