"""What a rank asks the person at the notebook, and whether it may."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: What a rank displays for the notebook alone when it asks: an :class:`InputRequest`.
INPUT_REQUEST = "application/vnd.labkit.asked+json"


class May(StrEnum):
    """Whether what runs on ranks may ask a person. It travels as the label of the request, which
    ipyparallel leaves to its user; a request without one may not."""

    ASK = "labkit: ask"
    FRONT_END = "labkit: no front end"
    CHECK = "labkit: a check"
    NOBODY = ""

    @classmethod
    def read(cls, label: object) -> May:
        """Return what a request's label says."""
        return next((may for may in cls if may == label), cls.NOBODY)


#: Why nobody can answer, as the end of a sentence.
REASONS = {
    May.FRONT_END: "here: this front end takes no input, as under nbval, labkit run or in CI",
    May.CHECK: "during a check: leave it out of the answer",
    May.NOBODY: "here: the notebook does not wait for it in a %%px cell or in lab.run",
}


def refusal(call: str, why: May) -> str:
    """Return the sentence for a call that asks a person where nobody can answer.

    >>> refusal("input()", May.CHECK)
    'input() asks a person, but nobody can answer during a check: leave it out of the answer.'
    """
    return f"{call} asks a person, but nobody can answer {REASONS[why]}."


@dataclass(frozen=True)
class InputRequest:
    """What a rank asks: once, as the code in it calls ``input``."""

    number: int  #: counts on, so that an answer that comes too late is no answer to the next one
    prompt: str  #: "ipdb> "
    secret: bool = False  #: the answer is not to be seen: ``getpass``
