"""Say what a script that trains tells of itself, for a check that has to see it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

#: The variable that asks for it: an :class:`Asked`, as JSON.
VARIABLE = "LABKIT_TRAINING"


@dataclass(frozen=True)
class Asked:
    """Ask the processes of a script what they train on.

    Process 3 writes what it does into ``3.jsonl`` of the folder, one line for each thing:
    ``{"step": [7, 9]}`` is a step of an optimizer on two rows, each with a number that only equal
    rows share; ``{"saved": "a.pt"}`` is a call of ``torch.save``; ``{"held": 17}`` says that the
    process waits to be killed before its 17th step, which it does in its first life only: torchrun
    may start it again. At its end it writes its weights as one vector
    into ``3.pt``.
    """

    folder: str
    hold_rank: int = -1  #: the process that waits; -1: none does
    hold_step: int = 0  #: the step before which it waits, counted from 1

    def encoded(self) -> str:
        """Return the value of the variable."""
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, text: str) -> Asked:
        """Read the value of the variable."""
        return cls(**json.loads(text))
