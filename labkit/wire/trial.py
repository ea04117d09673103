"""Where a trial of an exercise runs: what it may know about its place, on a rank or in the
notebook.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# -- of what kind a value is, in a learner's words ------------------------------------------------

# Torch is not imported for it: a rank has it, the notebook's kernel may not need it.

#: One word for the items of a list, by their type.
_ITEMS = {
    bool: "True or False",
    int: "number",
    float: "number",
    str: "text",
    bytes: "bytes",
    list: "list",
    tuple: "tuple",
    dict: "dict",
    type(None): "None",
}
#: Items of a list that are all described, if they are not of one kind.
_LISTED = 3
#: What has no plural.
_UNCOUNTED = ("True or False", "bytes", "None")


def kind_of(value: Any) -> str:
    """Describe the type of a value, with the length or shape where it has one."""
    if value is None or value is ...:
        return str(value)
    if isinstance(value, bool):
        return "True or False"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number with a decimal point"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, list | tuple | set | frozenset):
        return _collection(value)
    if isinstance(value, Mapping):
        return f"a dict of {len(value)} {'entry' if len(value) == 1 else 'entries'}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        what = "a tensor" if type(value).__module__.startswith("torch") else "an array"
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{what} of {dtype} with shape {tuple(value.shape)}"
    if isinstance(value, types.GeneratorType):
        return "a generator"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return "a function"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__.lstrip("_")
    return f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"


def _collection(value: Any) -> str:
    name = "set" if isinstance(value, set | frozenset) else type(value).__name__
    name = name if name in ("list", "set") else "tuple"
    if not value:
        return f"an empty {name}"
    words = {_item(item) for item in value}
    if len(words) > 1 and len(value) <= _LISTED:
        return f"a {name} of {' and '.join(map(kind_of, value))}"
    word = words.pop() if len(words) == 1 else "item"
    if word in _UNCOUNTED:
        return f"a {name} of {word}"
    return f"a {name} of {len(value)} {word}{'' if len(value) == 1 else 's'}"


def _item(value: Any) -> str:
    if type(value) in _ITEMS:
        return _ITEMS[type(value)]
    if callable(value) and hasattr(value, "__code__"):
        return "function"
    return "tensor" if type(value).__name__ == "Tensor" else "item"


# -- a trial --------------------------------------------------------------------------------------

# moved here

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
    """Return what cells have defined by the name of an answer."""
    if name not in names:
        return "missing"
    if _does_nothing(names[name]):
        return "unwritten"
    return "written" if callable(names[name]) else "no function"


#: What a function does that does nothing.
_NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "COPY_FREE_VARS"}


def _does_nothing(answer: Any) -> bool:
    """Return whether a function, or every function of a class, is a stub: ``...``, ``pass`` or
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
    """Return whether it is something that every class has: its docstring, its module, …"""
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
