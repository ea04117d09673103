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
        if self.count("not run") or not self.items:
            return "not run"
        return "passed" if self.count("passed") else "skipped"

    @property
    def is_over(self) -> bool:
        """Return whether each item has been run or skipped."""
        return bool(self.items) and not self.count("not run")


def exit_code(steps: list[Step], *, gpu: bool = True) -> int:
    """Return what the command ends with; without a GPU, what needs one may be skipped."""
    states = {step.state for step in steps}
    if "failed" in states:
        return FAILED
    counted = states if gpu else states - {"skipped"}
    return PASSED if counted == {"passed"} else NOT_RUN
