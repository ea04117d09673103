"""Where a trial of an exercise runs: what it may know about its place, on a rank or in the
notebook."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .kinds import kind_of

#: What there is by the name of an answer: nothing; the stub, as it was delivered; something that
#: cannot be called; an answer; one that is right with this number of ranks only.
Found = Literal["missing", "unwritten", "no function", "written", "one size"]


def nobody_waits(seconds: float) -> None:
    """Refuse to be late, where no message is sent.

    Raises
    ------
    RuntimeError
        Always.
    """
    raise RuntimeError("nobody waits for a message of a trial that runs in the notebook")


@dataclass(frozen=True)
class Here:
    """Tell a trial where it runs: ``trial(answer, here)``.

    Parameters
    ----------
    rank, world_size
        Of the lab's group; in the notebook 0 and 1. A cell may have given ``rank`` another value:
        this is the real one.
    device
        The ``torch.device`` on which this rank computes.
    be_late
        ``be_late(seconds)``: come so much later to each message of this rank, from here on to the
        end of the trial.
    """

    rank: int
    world_size: int
    device: Any
    be_late: Callable[[float], None] = nobody_waits


@dataclass(frozen=True)
class TrialEnd:
    """What a trial has left on a rank."""

    forbidden: tuple[str, ...]  #: names of forbidden functions that it has called
    joined: bool  #: there is a default group
    same_group: bool  #: it is the one from before the trial
    arrived: bool  #: all messages of the trial have been waited for, and have arrived


def find(name: str, names: dict[str, Any]) -> Found:
    """Tell what cells have defined by the name of an answer."""
    if name not in names:
        return "missing"
    if _does_nothing(names[name]):
        return "unwritten"
    return "written" if callable(names[name]) else "no function"


#: What a function does that does nothing.
_NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "COPY_FREE_VARS"}


def _does_nothing(answer: Any) -> bool:
    """Tell whether a function, or every function of a class, is a stub: ``...``, ``pass`` or
    ``return None`` below a docstring."""
    if isinstance(answer, type):
        own = [value for value in vars(answer).values() if not _is_plain(value)]
        return all(map(_does_nothing, own))
    if not isinstance(answer, types.FunctionType):
        return answer is ...
    steps = list(dis.get_instructions(answer))
    returned = [s.argval for s in steps if s.opname in ("LOAD_CONST", "RETURN_CONST")]
    return {s.opname for s in steps} <= _NOTHING and returned == [None]


def _is_plain(value: Any) -> bool:
    """Tell whether it is something that every class has: its docstring, its module, …"""
    return value is None or isinstance(value, str | tuple | types.GetSetDescriptorType)


class Watched:
    """Stand in for an answer while it is tried, and remember what it gave last."""

    def __init__(self, answer: Any) -> None:
        functools.update_wrapper(self, answer, updated=())
        self._answer = answer
        self.begun = self.ended = 0  #: calls
        self.last: Any = None  #: what the last call that has ended returned

    @property  # type: ignore[misc]  # a trial may ask what it is
    def __class__(self) -> type:
        return type(self._answer)

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.begun += 1
        self.last = self._answer(*args, **named)
        self.ended += 1
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_answer"], name)


@dataclass(frozen=True)
class Unusable:
    """Stand in the place of a rank's value where the trial could not use what the answer gave.

    ``error`` and ``message`` are what the trial met; ``returned`` says of what kind the answer's
    last value is ("a list of 3 lists"), "" if it could not be called at all; ``wanted`` is the
    type that the answer's first line names, "" if it names none.
    """

    error: str
    message: str
    returned: str = ""
    wanted: str = ""


def unusable(error: Exception, answer: Watched) -> Unusable:
    """Describe an error that came from no line of the answer."""
    called = answer.begun == answer.ended > 0
    hint = getattr(answer, "__annotations__", {}).get("return", "")
    return Unusable(
        type(error).__name__,
        str(error).splitlines()[0] if str(error) else "",
        kind_of(answer.last) if called else "",
        (hint.__name__ if inspect.isclass(hint) else str(hint)).removeprefix("typing."),
    )
