"""Short functions that the notebook lets ranks run, by their signatures.

Here they have no body: calling one gives a :class:`Call`, which ``runtime.cluster`` sends to a
rank, where :func:`on_rank` runs what ``rank.setup`` serves it by. Both sides are checked
against the one signature.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

# moved here
from .recording import Recording
from .state import ProcessFacts, Returned
from .trial import Found, Here, TrialEnd

if TYPE_CHECKING:
    from .memory_files import Address
    from .packing import Packed

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Call(Generic[R]):
    """A remote call with its arguments, on its way to a rank; it returns an ``R`` there."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class RemoteFunction(Generic[P, R]):
    """A function of the ranks, by its signature; made with :func:`remote_function`."""

    #: name -> remote call
    all: dict[str, RemoteFunction[..., Any]] = {}  # noqa: RUF012

    def __init__(self, signature: Callable[P, R]) -> None:
        functools.update_wrapper(self, signature)
        self.name = signature.__name__
        self.implementation: Callable[P, R] | None = None  #: only on a rank
        RemoteFunction.all[self.name] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        return Call(self.name, args, kwargs)

    def handled_by(self, implementation: Callable[P, R]) -> None:
        """Make this process serve the remote call, with a function of the same signature."""
        self.implementation = implementation


def remote_function(signature: Callable[P, R]) -> RemoteFunction[P, R]:
    """Declare a function that ranks run, from its signature."""
    return RemoteFunction(signature)


def on_rank(call: Call[R]) -> R:
    """Run a call in the process that it has come to.

    Raises
    ------
    LookupError
        If this process does not serve it.
    """
    found = RemoteFunction.all.get(call.name)
    if found is None or found.implementation is None:
        raise LookupError(
            f"no remote call {call.name!r} here: notebook and ranks need the same version of labkit"
        )
    result: R = found.implementation(*call.args, **call.kwargs)
    return result


# -- set-up -------------------------------------------------------------------------------------


@remote_function
def describe(file: Address | None = None) -> ProcessFacts:
    """Describe the process; ``file`` is one of the notebook's, which it may be able to open."""


@remote_function
def assign(
    rank: int,
    world_size: int,
    device: str,
    threads: int,
    environment: Mapping[str, str],
    address: str,
    autoreload: bool,
) -> None:
    """Tell a process which rank it is, and give its cells their names."""


# -- the process group --------------------------------------------------------------------------


@remote_function
def find_address() -> str:
    """Return the address of the host that other hosts reach it by, "" if that is not certain."""


@remote_function
def address_towards(other: str) -> str:
    """Return the address that the host sends from to another one, "" if there is no way."""


@remote_function
def address() -> str:
    """Return the address by which the rank is reached from other hosts."""


@remote_function
def open_store(host: str, timeout: float) -> tuple[int, int]:
    """Serve a TCPStore on ``host``; return its port, and that of ``reserve_port``.

    ``timeout`` in seconds.
    """


@remote_function
def reserve_port(host: str) -> int:
    """Keep a free port of ``host`` for groups that the learner forms; return its number."""


@remote_function
def export(rank: int, world_size: int, host: str, port: int) -> None:
    """Set the variables by which ``env://`` finds the others."""


@remote_function
def join(
    rank: int,
    world_size: int,
    backend: str,
    device: str,
    host: str,
    port: int,
    own_port: int,
    timeout: float,
) -> None:
    """Join the default process group, and ``export`` the port for the learner's own groups.

    ``timeout`` in seconds.
    """


@remote_function
def leave(by: str = "") -> None:
    """Leave the process group, if the rank is in one.

    ``by`` says through what: "lab.reset()"; "the deadlock", of the last cell.
    """


# -- functions and variables of the notebook ----------------------------------------------------


@remote_function
def call(payload: Packed, file: Address | None = None) -> Returned:
    """Call the pickled ``(function, args, kwargs)``; what is large of the result may go to
    ``file``."""


@remote_function
def pull(name: str, file: Address | None = None) -> Returned:
    """Return a variable of the cells; with dots in its name an attribute of one. What is large of
    it may go to ``file``."""


@remote_function
def push(payload: Packed) -> Returned:
    """Set variables of the cells from a pickled dict."""


@remote_function
def delete(name: str) -> bool:
    """Delete a variable of the cells; return whether there was one."""


@remote_function
def list_names(modules: bool) -> list[str]:
    """Return the names that cells have, in alphabetical order; with ``modules`` those of modules
    too."""


# -- a cell that is being written ---------------------------------------------------------------


@remote_function
def complete(cell: str, cursor: int) -> list[Suggestion]:
    """Return how the text before the cursor could go on."""


@remote_function
def explain(cell: str, cursor: int, detail: int) -> dict[str, str]:
    """Return the help on the name at the cursor, by MIME type."""


# -- trials of exercises ------------------------------------------------------------------------


@remote_function
def prepare_trial(name: str) -> Found:
    """Get ready for a trial; tell what cells have defined by the name of its answer."""


@remote_function
def run_trial(
    trial: Callable[[Any, Here], Any],
    answer: str,
    forbids: tuple[str, ...],
    ranks: dict[tuple[str, int], int],
    world_size: int,
) -> tuple[Any, dict[str, int]]:
    """Try an answer on the first ``world_size`` ranks; return its value and what it took
    (``MEASURES``)."""


@remote_function
def may_fix_size(answer: str, world_size: int) -> bool:
    """Return whether an answer may contain the number of ranks as a constant."""


@remote_function
def end_trial(wait: bool) -> TrialEnd:
    """End the trial. With ``wait``, wait a moment for the messages that the answer has posted."""


# -- timelines ----------------------------------------------------------------------------------


@remote_function
def record(
    function: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str,
    hosts: Mapping[int, str],
) -> Recording:
    """Record a function or, if it is None, a cell: ``args`` are its text and its name then."""


@dataclass(frozen=True)
class Suggestion:
    """A way to go on from the cursor."""

    start: int  #: where the text begins that it replaces, in characters of the cell
    text: str  #: what that becomes
    type: str  #: "function", "instance", "module" … as IPython calls them, "" if unknown
