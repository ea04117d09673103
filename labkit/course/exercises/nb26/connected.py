"""Give a trial RPC between all ranks for its length.

The ranks call each other, so a trial needs RPC. It uses that of the cells, if all ranks have it and
it works; otherwise it has its own, which ends with the trial. What interrupts a trial cuts RPC's
connections too: then RPC ends in any case. Functions and classes that travel by RPC are those of an
exercise's module, which every rank can import.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import rpc

from ....base import times
from ...exercise import Failed, Here

#: TensorPipe through sockets. Through shared memory its threads poll, and take all processors.
TRANSPORTS, CHANNELS = ["uv"], ["basic"]
#: What rank 0 does not return itself.
SERVED = "served"
#: What is on this rank for the length of a trial: the others' calls find it here.
on_this_rank: dict[str, Any] = {}
#: The agent that was closed last, and the thread that does it.
_closing: tuple[Any, threading.Thread] | None = None
_forgetting = threading.Lock()


def connected(trial: Callable[..., Any]) -> Callable[..., Any]:
    """Give a trial RPC between all ranks, which meet before and after it. An error that the trial
    returns is raised after that."""

    @functools.wraps(trial)
    def tried(answer: Callable[..., Any], here: Here) -> Any:
        own = True
        try:
            own = _open(here.rank, here.world_size)
            value = trial(answer, here)
            dist.barrier()  # nobody hangs up while another one calls
            if own:
                _announce_the_end()
                dist.barrier()
        except BaseException:
            own = True
            raise
        finally:
            on_this_rank.clear()
            if own:
                _close()
        if isinstance(value, BaseException):
            raise value
        return value

    return tried


def _open(rank: int, n: int) -> bool:
    """Open RPC on every rank, unless it is open and works; return whether it was opened here.

    Without a world size, as a group that ranks may join and leave at any time: torch counts the
    meetings of a fixed one on each rank, and one that was interrupted is not counted on all.
    """
    if all(gather(rpc._is_current_rpc_agent_set(), n)) and all(gather(_reaches_all(n), n)):
        return False
    _close()
    prefix = gather(uuid.uuid4().hex, n)[0]
    store = dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())
    options = rpc.TensorPipeRpcBackendOptions(
        rpc_timeout=times.RPC_OPENED, _transports=TRANSPORTS, _channels=CHANNELS
    )
    rpc.dist_autograd._init(rank)  # as init_rpc does, which cannot be given a store
    with _loopback():
        rpc._init_rpc_backend(
            rpc.BackendType["TENSORPIPE"], store, f"rank{rank}", rank, None, options
        )
    dist.barrier()
    return True


def gather(value: Any, n: int) -> list[Any]:
    """Return the value of each rank."""
    values = [None] * n
    dist.all_gather_object(values, value)
    return values


def _reaches_all(n: int) -> bool:
    """Return whether every rank, this one too, answers a call from here."""
    try:
        torch.futures.wait_all(
            [
                rpc.rpc_async(name, _answer, timeout=times.RPC_ANSWER.seconds())
                for name in worker_names(n)
            ]
        )
    except RuntimeError:
        return False
    return True


def _answer() -> None:
    """Be called."""


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Make TensorPipe listen where gloo does."""
    before = os.environ.get("TP_SOCKET_IFNAME")
    if before is not None or "GLOO_SOCKET_IFNAME" not in os.environ:
        yield
        return
    os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"]
    try:
        yield
    finally:
        os.environ.pop("TP_SOCKET_IFNAME", None)


def _announce_the_end() -> None:
    """Make the agent know that connections will end, or it warns of each; not while an answer's
    calls are on their way, which it would wait for."""
    agent = rpc._get_current_rpc_agent()
    deadline = time.monotonic() + times.RPC_CLOSED.seconds()
    while int(agent.get_debug_info()["agent.client_active_calls"]):
        if time.monotonic() > deadline:
            return
        time.sleep(times.RPC_LOOK)
    agent.join(shutdown=True)


def _close() -> None:
    """End RPC on this rank, whatever the others do and however often this is interrupted.

    ``rpc.shutdown`` waits for every function that serves a call, and one may never return: that
    waiting is left to a thread.
    """
    global _closing
    if not rpc._is_current_rpc_agent_set():
        return
    agent = rpc._get_current_rpc_agent()
    if _closing is None or _closing[0] is not agent:
        thread = threading.Thread(target=_shut, args=(agent,), daemon=True)
        thread.start()
        _closing = agent, thread
    _closing[1].join(times.RPC_CLOSED.seconds())
    _forget(agent)


def _shut(agent: Any) -> None:
    """Do what ``rpc.shutdown(graceful=False)`` does, to this agent only."""
    rpc._destroy_rref_context(True)
    agent.shutdown()
    _forget(agent)


def _forget(agent: Any) -> None:
    with _forgetting:
        if rpc._is_current_rpc_agent_set() and rpc._get_current_rpc_agent() is agent:
            rpc._cleanup_python_rpc_handler()
            rpc._reset_current_rpc_agent()


def attempt(function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
    """Return what a call gives, the error that it raises, or Failed after so many seconds.

    It runs in a thread, which is left behind where it cannot be ended: the other ranks are waiting
    for the end of the trial, and a thread that serves calls would keep RPC from closing.
    """
    seconds = times.RPC_TRIED.seconds() if seconds is None else seconds
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(function(*args))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
        thread.join(seconds)
    finally:
        if thread.is_alive():
            on_this_rank.setdefault("left", []).append(thread)
            _raise_in(thread, SystemExit)
    return found[0] if found else Failed("TimedOut", f"stopped after {seconds:g} s")


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise an error in a thread, as soon as it runs Python."""
    ident, raised = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, raised)


def quiet() -> contextlib.redirect_stderr[io.StringIO]:
    """Keep to itself what RPC prints of each error in a function that it serves: the caller gets
    the same text."""
    return contextlib.redirect_stderr(io.StringIO())


def worker_names(n: int) -> list[str]:
    """Return the names of the ranks in RPC."""
    return [f"rank{r}" for r in range(n)]
