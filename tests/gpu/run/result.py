"""What came of everything that was to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["passed", "failed", "skipped", "not run"]

#: Exit codes: everything ran and passed; something failed; nothing failed, but not all of it ran.
PASSED, FAILED, NOT_RUN = 0, 1, 2
TIME_OVER, STOPPED = "the time was over", "stopped"


@dataclass
class Item:
    """One test or one notebook."""

    name: str
    state: State
    seconds: float = 0.0
    why: str = ""  #: it failed, was skipped or did not run
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Step:
    """Some of it, of one kind."""

    name: str
    items: list[Item] = field(default_factory=list)
    seconds: float = 0.0
    why: str = ""  #: nothing of it ran

    def count(self, state: State) -> int:
        """Count the items that are in this state."""
        return sum(item.state == state for item in self.items)

    @property
    def state(self) -> State:
        """A step has passed if nothing of it failed or was left out, and something ran."""
        if self.count("failed"):
            return "failed"
        return "not run" if self.count("not run") or not self.count("passed") else "passed"


def exit_code(steps: list[Step]) -> int:
    """Return what the command ends with."""
    states = {step.state for step in steps}
    if "failed" in states:
        return FAILED
    return PASSED if states == {"passed"} else NOT_RUN
