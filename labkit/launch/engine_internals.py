"""Name what labkit uses of the insides of ipyparallel's engine, of its kernel, and of Python's end,
as its ``FEATURES`` list it."""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from ..wire.protocol import READY
from ..wire.state import Feature

#: What rests on which names, by library.
FEATURES = {
    "ipyparallel": {
        "registration": Feature(
            ("IPEngine.complete_registration",),
            "labkit cannot tell when a rank is there",
            needed=True,
        ),
        "stop": Feature(("IPEngine._signal_stop",), "ranks take up to half a second longer to end"),
        "thread": Feature(
            ("AsyncFirst._async_thread", "AsyncFirst._thread_loop"),
            "a stopped lab leaves a thread behind in the notebook",
        ),
    },
    "ipykernel": {
        "handlers": Feature(
            ("Kernel.control_handlers", "Kernel.control_thread"),
            "the stop button does not reach a rank",
        ),
    },
    "Python": {
        "exit functions": Feature(
            ("atexit._run_exitfuncs",),
            "what a rank has registered with atexit does not run when the lab is stopped",
        ),
    },
}


@contextmanager
def seen_by(module: str, name: str, **attributes: Any) -> Iterator[None]:
    """Make a module see other attributes of one that it imports by a name of its own."""
    own = vars(sys.modules[module]) if module in sys.modules else {}
    original = own.get(name)
    if original is None:
        yield
        return
    own[name] = SimpleNamespace(**{**vars(original), **attributes})
    try:
        yield
    finally:
        own[name] = original


def on_registered(kind: type, before: str, then: str) -> None:
    """Make a class of engines call two methods of its own when the hub has an id for one.

    ``before(connect)`` returns what connects the engine's sockets, from what would do it:
    ``connect(socket, url)``. ``then(maybe_tunnel)`` is called when all is made; ``maybe_tunnel``
    turns an address of the controller into one that can be reached from here.
    """
    original = kind.complete_registration  # type: ignore[attr-defined]

    async def complete_registration(self: Any, msg: Any, connect: Any, maybe_tunnel: Any) -> None:
        with _without_list_of_modules():
            await original(self, msg, getattr(self, before)(connect), maybe_tunnel)
        getattr(self, then)(maybe_tunnel)

    kind.complete_registration = complete_registration  # type: ignore[attr-defined]


def say_ready(engine: Any) -> None:
    """Notify the hub that an engine is there, on the socket by which it has registered."""
    if socket := getattr(engine, "registrar", None):
        engine.session.send(socket, READY)


def _without_list_of_modules() -> AbstractContextManager[None]:
    """Make a kernel be made without the list of all modules that are imported, which its debugger
    would need: without debugpy nobody reads it. To make it, a forked rank writes to the count of
    references in each module, and so has pages of its own for all of them.
    """
    if getattr(sys.modules.get("ipykernel.debugger"), "_is_debugpy_available", True):
        return nullcontext()
    return seen_by("ipykernel.ipkernel", "sys", modules={})


def on_sigterm(kind: type, then: str) -> None:
    """Make a class of engines call its method ``then()`` on SIGTERM, and nothing else."""

    def _signal_stop(self: Any, sig: int, frame: Any) -> None:
        getattr(self, then)()

    kind._signal_stop = _signal_stop  # type: ignore[attr-defined]


def run_exit_functions() -> None:
    """Run what was registered with atexit, now, but not torch's: it would take its tables of
    operators apart one by one, for 50 ms of a process that is about to end."""
    finalizers: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    for finalizer, info in list(finalizers.items()):
        if getattr(info.func, "__module__", "") == "torch.library":
            finalizer.atexit = False
    if hasattr(atexit, "_run_exitfuncs"):
        atexit._run_exitfuncs()


def answer_control(kernel: Any, kind: str, handler: Callable[[Any, Any, Any], None]) -> None:
    """Make a kernel answer requests of one kind on its control channel.

    ``handler(stream, ident, parent)`` runs in the thread of that channel.
    """
    if hasattr(kernel, "control_handlers"):
        kernel.control_handlers[kind] = handler


def call_later(kernel: Any, seconds: float, function: Callable[..., object], *args: Any) -> None:
    """Call a function in the thread of a kernel's control channel, after what is to be sent."""
    thread = getattr(kernel, "control_thread", None)
    if thread is None:
        kernel.io_loop.call_later(seconds, function, *args)
    else:
        thread.io_loop.call_later(seconds, function, *args)
