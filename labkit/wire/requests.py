"""What the notebook asks ranks on their control channel; what ranks ask the user.

Every question is a dataclass that names its request and its answer: ``runtime.control.ask`` sends
one to a rank and returns the answer, ``rank.control`` has a handler for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar, get_args

from .connections import Pair
from .samples import Sample, Wait
from .state import Gpu

A = TypeVar("A")
Q = TypeVar("Q", bound="Question[Any]")

#: The name of every answer.
REPLY = "labkit_reply"
#: The only key of an answer to a question that the rank could not read: why.
REFUSED = "refused"


class Request(StrEnum):
    """The requests of labkit on an engine's control channel."""

    BUSY = "labkit_busy"
    SURVEY = "labkit_survey"
    WATCH = "labkit_watch"
    SAMPLE = "labkit_sample"
    CONNECTIONS = "labkit_connections"
    SHUT = "labkit_shut"
    WAKE = "labkit_wake"
    WAIT = "labkit_wait"
    INPUT = "labkit_input"
    CURVES = "labkit_curves"


class Question(Generic[A]):
    """A question of one kind, with an answer of type ``A``; subclasses are dataclasses."""

    request: ClassVar[Request]
    answer: ClassVar[type]
    #: request -> its question
    kinds: ClassVar[dict[Request, type[Question[Any]]]] = {}

    def __init_subclass__(cls) -> None:
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
        (cls.answer,) = get_args(base)
        Question.kinds[cls.request] = cls

    @classmethod
    def answered_by(cls: type[Q], handler: Callable[[Q], A]) -> Handler:
        """Pair the question with a function that answers it at once."""
        return Handler(cls, lambda question, tell: tell(handler(question)))

    @classmethod
    def answered_later(cls: type[Q], handler: Callable[[Q, Callable[[A], None]], None]) -> Handler:
        """Pair the question with a function that is given one to call with the answer."""
        return Handler(cls, handler)


@dataclass(frozen=True)
class Handler:
    """How a rank answers one kind of question."""

    question: type[Question[Any]]
    #: takes the question, and a function to call with the answer
    start: Callable[[Any, Callable[[Any], None]], None]


# -- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Busy:
    """Whether something runs on the main thread."""

    busy: bool


@dataclass(frozen=True)
class Activity:
    """What the main thread does, and what the rank uses."""

    busy: bool
    where: str  #: "In[7], line 3"
    line: str  #: "dist.barrier()"
    memory: int  #: bytes that would be free if it ended
    gpu: Gpu | None
    asks: str = ""  #: the prompt at which it waits for the user: "ipdb>"
    left: str = ""  #: the sentence that says how a cell has ended the lab's process group


@dataclass(frozen=True)
class Watched:
    """A rank that waits for another; without a sample, the question gave way to a newer one."""

    sample: Sample | None


@dataclass(frozen=True)
class Connections:
    """The TCP connections of a rank."""

    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Count:
    """How many there were of what was asked for."""

    count: int


@dataclass(frozen=True)
class Waiting:
    """What the main thread waits for, if it does."""

    wait: Wait | None


@dataclass(frozen=True)
class Curve:
    """The newest points of one curve: of a list, or of a number as it is now.

    The values of a list are ``every`` so many, up to its last one; its first has the number
    ``first``. Those that are not finite are None.
    """

    name: str  #: "losses"; of an entry of a dict "history['train']"
    values: tuple[float | None, ...]
    first: int | None = None  #: None: a number
    every: int = 1
    source: int = 0  #: another number if it is another list


@dataclass(frozen=True)
class Curves:
    """What the watched variables of a rank hold; one that is not there is left out."""

    curves: tuple[Curve, ...]
    unreadable: Mapping[str, str]  #: variable -> what it holds instead, as the end of a sentence


# -- questions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskBusy(Question[Busy]):
    """Does something run on the main thread?"""

    request = Request.BUSY


@dataclass(frozen=True)
class AskActivity(Question[Activity]):
    """What does the main thread do, and how much memory is used?"""

    request = Request.SURVEY


@dataclass(frozen=True)
class AskWatch(Question[Watched]):
    """Say when the main thread waits for another rank, unless its stamp is ``known``."""

    request = Request.WATCH
    known: tuple[int, ...]


@dataclass(frozen=True)
class AskSample(Question[Sample]):
    """What does it wait for, and what has this rank provided?"""

    request = Request.SAMPLE


@dataclass(frozen=True)
class AskConnections(Question[Connections]):
    """Which TCP connections are open?"""

    request = Request.CONNECTIONS


@dataclass(frozen=True)
class Shut(Question[Count]):
    """Shut these connections down, and abort NCCL's groups."""

    request = Request.SHUT
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Wake(Question[Count]):
    """Send a byte to a rank that receives from any: its number in the group, and the tag."""

    request = Request.WAKE
    group: str
    peer: int
    tag: int


@dataclass(frozen=True)
class AskWait(Question[Waiting]):
    """What does the main thread wait for, whether it stands still or not?"""

    request = Request.WAIT


@dataclass(frozen=True)
class GiveInput(Question[Count]):
    """Take what the user has typed at the input request of this number; count 0: none is open."""

    request = Request.INPUT
    number: int
    text: str | None  #: None: the end of the input (Ctrl-D)
    refused: bool = False  #: nobody can answer


#: Of one rank curves, and points in one answer: some ten thousand bytes.
MOST_CURVES, MOST_POINTS = 8, 256


@dataclass(frozen=True)
class AskCurves(Question[Curves]):
    """What do these variables hold that is new? Never waits for a device."""

    request = Request.CURVES
    names: tuple[str, ...]
    #: curve -> its ``source``, and how many of its values are known
    known: Mapping[str, tuple[int, int]]


# -- input requests -------------------------------------------------------------------------------

#: What a rank displays for the notebook alone when it asks: an :class:`InputRequest`.
INPUT_REQUEST = "application/vnd.labkit.asked+json"


class May(StrEnum):
    """Whether what runs on ranks may ask the user. It travels as the label of the request, which
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
    """Return the sentence for a call that asks the user where nobody can answer.

    >>> refusal("input()", May.CHECK)
    'input() asks the user, but nobody can answer during a check: leave it out of the answer.'
    """
    return f"{call} asks the user, but nobody can answer {REASONS[why]}."


@dataclass(frozen=True)
class InputRequest:
    """What a rank asks: once, as the code in it calls ``input``."""

    number: int  #: counts on, so that an answer that comes too late is no answer to the next one
    prompt: str  #: "ipdb> "
    secret: bool = False  #: the answer is not to be seen: ``getpass``
