"""What a rank is and does, as the notebook knows it."""

from __future__ import annotations

from dataclasses import dataclass

from .features import Missing


@dataclass(frozen=True)
class ProcessFacts:
    """What a process knows of itself before it is a rank."""

    host: str
    pid: int
    hint: int | None  #: the launcher's number for it
    gpus: tuple[str, ...]  #: that it can compute on: what tells each from the host's others
    nccl: tuple[int, ...] | None  #: version, None where there is no GPU or no NCCL
    cores: int  #: that it may run on
    missing: tuple[Missing, ...] = ()  #: features that are off there


@dataclass(frozen=True)
class Gpu:
    """What a rank's GPU does."""

    used: int  #: bytes that torch has taken from it in this rank
    total: int  #: bytes that it has
    busy: int | None = None  #: percent of the last moments in which it ran something


@dataclass(frozen=True)
class RankState:
    """What one rank is and does."""

    rank: int
    host: str
    pid: int
    device: str
    backend: str
    state: str  #: "idle", "running", "waiting", "asking", "no answer" or "dead"
    where: str = ""  #: "In[7], line 3"
    line: str = ""  #: "dist.barrier()"
    detail: str = ""  #: what it waits for or asks, how it died, why it gives no answer
    seconds: float | None = None  #: it has waited so long
    memory: int | None = None  #: bytes that would be free if it ended
    gpu: Gpu | None = None
    left: str = ""  #: how a cell has ended the lab's process group, where one has

    def describe(self) -> str:
        """Say what it does, in one line."""
        place = ": ".join(part for part in (self.where, self.line) if part)
        match self.state:
            case "running" if place:
                return f"running {place}"
            case "waiting":
                since = "" if self.seconds is None else f", for {self.seconds:.0f} s"
                return f"waiting in {self.detail}{since}" + (f" at {place}" if place else "")
            case "asking":
                return f"asks {self.detail}" + (f" at {place}" if place else "")
            case "dead":
                return f"dead: {self.detail}"
            case "no answer" if self.detail:
                return f"no answer ({self.detail})"
        return self.state
