"""Tell which threads of a Python process may do something that nobody sees coming.

Used on a rank (who may still issue a call?) and in the notebook (who may still send something to
a rank?). A thread is judged by the files of its frames: a thread that runs code of the user's may
do anything; those of Jupyter, ipyparallel, labkit and well-known monitors do what they always do.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import functools
import os
import queue
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinMethodType, CodeType, FrameType
from typing import Any

#: Packages whose threads never issue a call of the user's.
HARMLESS = frozenset(
    [
        "labkit",
        "ipykernel",
        "IPython",
        "ipywidgets",
        "comm",
        "jupyter_client",
        "jupyter_core",
        "tornado",
        "zmq",
        "traitlets",
        "tqdm",
        "debugpy",
        "pydevd",
        "_pydevd_bundle",
        "psutil",
        "watchfiles",
        "matplotlib",
        "execnet",
        "pytest",
        "_pytest",
        "pluggy",
        "xdist",
        "nbclient",
    ]
)
#: The package of the client, whose functions send things to ranks; and the function of asyncio
#: that is on the stack of its own threads, each of which runs an event loop.
CLIENT, LOOP = "ipyparallel", "run_forever"
#: Where torch carries data for a loader: threads and handlers there issue nothing.
CARRIERS = "/torch/utils/data/_utils/"
_STDLIB = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")
)
_ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep
#: Begins the file names of Python's own code that imports.
IMPORTING = "<frozen importlib."
_SITE = ("site-packages", "dist-packages")
#: Functions of the standard library that wait for another thread, without a limit where the
#: variable named is None.
_PARKING = {
    (threading.__file__, "wait"): "timeout",
    (threading.__file__, "join"): "timeout",
    (threading.__file__, "_wait_for_tstate_lock"): "timeout",
    (threading.__file__, "acquire"): "timeout",
    (threading.__file__, "__enter__"): "",
    (queue.__file__, "get"): "timeout",
    (queue.__file__, "put"): "timeout",
}
#: Functions of the standard library that wait for what another thread does.
_JOINING = (
    (threading.__file__, "join"),
    (threading.__file__, "_wait_for_tstate_lock"),
    (concurrent.futures._base.__file__, "result"),
    (concurrent.futures._base.__file__, "wait"),
)
#: A pool's thread that has nothing to do.
_IDLE = (concurrent.futures.thread.__file__, "_worker")


@dataclass(frozen=True)
class Seen:
    """A thread of this process, as far as it matters."""

    ident: int
    name: str  #: "Thread-3 (tick)"
    frame: FrameType


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that it was called from."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def look(without: Collection[int]) -> list[Seen]:
    """List the threads that may do something, but for those with some identifiers."""
    threads = {t.ident: t for t in threading.enumerate()}
    seen = []
    for ident, frame in sys._current_frames().items():
        if ident in without:
            continue
        thread = threads.get(ident)
        own = list(frames(frame))
        if _is_harmless(own, thread):
            continue
        name = thread.name if thread else "one that Python did not start"
        seen.append(Seen(ident, name, frame))
    return seen


def _is_harmless(own: list[FrameType], thread: threading.Thread | None) -> bool:
    """Return whether a thread does nothing of the user's, now or ever."""
    if isinstance(thread, threading.Timer):
        return not may_issue(thread.function)
    top = own[0]
    if (top.f_code.co_filename, top.f_code.co_name) == _IDLE:
        return bool(top.f_locals["work_queue"].empty())  # else it is about to take its work
    packages = {package(f.f_code.co_filename) for f in own}
    if "" in packages:
        return False
    # By what it was started for: labkit's frames are also on a thread that waits in a call.
    libraries = (package(f.f_code.co_filename) for f in reversed(own))
    began = next((name for name in libraries if name != "python"), "python")
    if began in HARMLESS or (began == CLIENT and not _is_clients(own)):
        return True
    if any(_carries(f.f_code) for f in own):
        return True
    return packages == {"python"} and _is_listener(own)


def _is_clients(own: list[FrameType]) -> bool:
    """Return whether a thread that runs ipyparallel's code was started for a call of its client:
    one that runs an event loop, or looks after a cluster's processes, is ipyparallel's own."""
    loops = any(f.f_code.co_name == LOOP for f in own)
    return not loops and any(_sends(f.f_code) for f in own)


def _sends(code: CodeType) -> bool:
    """Return whether code is of ipyparallel's client, whose views send things to ranks."""
    parts = code.co_filename.split(os.sep)
    return CLIENT in parts and "client" in parts[parts.index(CLIENT) :]


def _carries(code: CodeType) -> bool:
    """Return whether code only carries data for a loader of torch's."""
    return CARRIERS in code.co_filename.replace(os.sep, "/")


def _is_listener(own: list[FrameType]) -> bool:
    """Return whether a thread only writes what other threads log."""
    logging = sys.modules.get("logging.handlers")
    file = getattr(logging, "__file__", None)
    return any((f.f_code.co_filename, f.f_code.co_name) == (file, "_monitor") for f in own)


def code_of(function: object) -> CodeType | None:
    """Return the code that runs when something is called; None if it is in C."""
    while (inner := getattr(function, "func", None)) is not None:  # functools.partial
        function = inner
    for part in (function, getattr(function, "__func__", None), type(function).__call__):
        code = getattr(part, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def may_issue(function: object) -> bool:
    """Return whether a function that is called later may do something of the user's: all but those
    of harmless packages, and what asyncio calls for itself."""
    while (inner := getattr(function, "func", None)) is not None:  # functools.partial
        function = inner
    if not callable(function):
        return False
    owner = getattr(function, "__self__", None)
    if (inner := getattr(owner, "callback", None)) is not None:  # tornado's PeriodicCallback
        return may_issue(inner)
    code = code_of(function)
    if code is None:  # written in C: a lock's release, a queue's put, or asyncio's own
        builtin = isinstance(function, BuiltinMethodType)
        return builtin and not isinstance(owner, asyncio.Future)
    home = package(code.co_filename)
    if _carries(code):
        return False
    if home == "python":
        return not code.co_filename.startswith(_ASYNCIO)
    if home == CLIENT:  # a view's methods send something; the engine's own serve it
        return _sends(code)
    return home not in HARMLESS


@functools.cache
def package(file: str) -> str:
    """Return the package that a file belongs to: "python", a library's, "" for the user's; what
    an exercise runs and the course's own notebooks and modules count as the user's."""
    if file.startswith(_COURSE):
        return ""
    if file.startswith("<frozen"):
        return "python"
    parts = file.replace(os.sep, "/").split("/")
    for site in _SITE:
        if site in parts[:-1]:
            return parts[parts.index(site) + 1].removesuffix(".py")
    # A cell's name is no path: it is not inside the folder that the notebook happens to be in.
    real = os.path.realpath(file) if os.path.isabs(file) else file
    if file.startswith(_STDLIB) or real.startswith(_STDLIB):
        return "python"
    return "labkit" if file.startswith(_LABKIT) else ""


_LABKIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: A wheel has the course inside the package.
_COURSE = tuple(
    os.path.join(_LABKIT, *parts, "") for parts in (("course", "exercises"), ("_course",))
)


def joins(frame: FrameType) -> bool:
    """Return whether a thread waits for another one to end, or for what that returns."""
    return any((f.f_code.co_filename, f.f_code.co_name) in _JOINING for f in frames(frame))


def is_parked(frame: FrameType) -> bool:
    """Return whether a thread waits, without a time limit, for another thread of its process."""
    code = frame.f_code
    limit = _PARKING.get((code.co_filename, code.co_name))
    if limit is None:
        return False
    values = frame.f_locals
    if values.get("block", True) is False or values.get("blocking", True) is False:
        return False
    if _is_woken(values):
        return False
    timeout = values.get(limit)
    return timeout is None or (isinstance(timeout, int | float) and timeout < 0)


def _is_woken(values: Mapping[str, Any]) -> bool:
    """Return from its variables whether a call of ``threading`` has what it waited for: a thread
    that was notified may have to wait for the processor before it runs."""
    lock = values.get("waiter", values.get("lock"))  # of Condition.wait; of a thread's end
    return values.get("gotit") is True or (hasattr(lock, "locked") and not lock.locked())
