"""The exercises of notebook 13: calls at once, a lock, a worker of a parameter server.

The ranks call each other, so a trial needs RPC. It uses that of the cells, if all ranks have it and
it works; otherwise it has its own, which ends with the trial. What interrupts a trial cuts RPC's
connections too: then RPC ends in any case.
Functions and classes that travel by RPC are those of this module, which every rank can import.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import rpc

from ..exercise import Exercise, Failed, Here, Mistake
from ..mistakes import When, failed, would_give

#: Seconds that an answer may take; that RPC may take to open, to answer, and to close.
BOUND, OPENING, ANSWERING, CLOSING = 6.0, 30.0, 5.0, 1.0
#: TensorPipe through sockets. Through shared memory its threads poll, and take all processors.
TRANSPORTS, CHANNELS = ["uv"], ["basic"]
#: What rank 0 does not return itself.
SERVED = "served"
#: What is on this rank for the length of a trial: the others' calls find it here.
_here: dict[str, Any] = {}
#: The agent that was closed last, and the thread that does it.
_closing: tuple[Any, threading.Thread] | None = None
_forgetting = threading.Lock()


# -- RPC for the length of a trial ------------------------------------------------------------


def _connected(trial: Callable[..., Any]) -> Callable[..., Any]:
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
            _here.clear()
            if own:
                _close()
        if isinstance(value, BaseException):
            raise value
        return value

    return tried


def _open(rank: int, n: int) -> bool:
    """Open RPC on every rank, unless it is open and works; tell whether it was opened here.

    Without a world size, as a group that ranks may join and leave at any time: torch counts the
    meetings of a fixed one on each rank, and one that was interrupted is not counted on all.
    """
    if all(_gather(rpc._is_current_rpc_agent_set(), n)) and all(_gather(_reaches_all(n), n)):
        return False
    _close()
    prefix = _gather(uuid.uuid4().hex, n)[0]
    store = dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())
    options = rpc.TensorPipeRpcBackendOptions(
        rpc_timeout=OPENING, _transports=TRANSPORTS, _channels=CHANNELS
    )
    rpc.dist_autograd._init(rank)  # as init_rpc does, which cannot be given a store
    with _loopback():
        rpc._init_rpc_backend(
            rpc.BackendType["TENSORPIPE"], store, f"rank{rank}", rank, None, options
        )
    dist.barrier()
    return True


def _gather(value: Any, n: int) -> list[Any]:
    """Return the value of each rank."""
    values = [None] * n
    dist.all_gather_object(values, value)
    return values


def _reaches_all(n: int) -> bool:
    """Tell whether every rank, this one too, answers a call from here."""
    try:
        torch.futures.wait_all(
            [rpc.rpc_async(name, _answer, timeout=ANSWERING) for name in _names(n)]
        )
    except RuntimeError:
        return False
    return True


def _answer() -> None:
    """Be called."""


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Let TensorPipe listen where gloo does."""
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
    """Let the agent know that connections will end, or it warns of each; not while an answer's
    calls are on their way, which it would wait for."""
    agent = rpc._get_current_rpc_agent()
    deadline = time.monotonic() + CLOSING
    while int(agent.get_debug_info()["agent.client_active_calls"]):
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
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
    _closing[1].join(CLOSING)
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


def _attempt(function: Callable[..., Any], *args: Any, seconds: float = BOUND) -> Any:
    """Return what a call gives, the error that it raises, or Failed after so many seconds.

    It runs in a thread, which is left behind where it cannot be ended: the other ranks are waiting
    for the end of the trial, and a thread that serves calls would keep RPC from closing.
    """
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
            _here.setdefault("left", []).append(thread)
            _raise_in(thread, SystemExit)
    return found[0] if found else Failed("TimedOut", f"stopped after {seconds:g} s")


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise an error in a thread, as soon as it runs Python."""
    ident, raised = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, raised)


def _names(n: int) -> list[str]:
    return [f"rank{r}" for r in range(n)]


# -- 13-1: ask everybody at once --------------------------------------------------------------

#: Seconds that a rank works for each question.
WORK = 0.8


def _work() -> tuple[str, float, float]:
    """Return who worked, from when, until when. All ranks of a trial are on one host, or else
    their clocks do not compare and this says nothing against the answer."""
    began = time.monotonic()
    time.sleep(WORK)
    return rpc.get_worker_info().name, began, time.monotonic()


@_connected
def ask_trial(answer: Callable[..., Any], here: Here) -> Any:
    if here.rank > 0:
        return SERVED
    return _attempt(lambda: _seen(answer(_work)), seconds=here.world_size * WORK + BOUND)


def _seen(found: Any) -> Any:
    """Return who has worked in which way, or what else an answer gave."""
    if not isinstance(found, list):
        return type(found).__name__
    if any(hasattr(one, "wait") for one in found):
        return "futures"
    if any(not isinstance(one, tuple) for one in found):
        return [type(one).__name__ for one in found]
    names = [name for name, _, _ in found]
    spans = [span for _, *span in found]
    apart = any(a[1] <= b[0] for a in spans for b in spans)
    return names, "one after the other" if apart else "at once"


def ask_expected(n: int) -> list[Any]:
    return [(_names(n), "at once"), *[SERVED] * (n - 1)]


ASK = Exercise(
    id="13-1",
    title="Ask everybody at once",
    answer="ask_all",
    trial=ask_trial,
    expected=ask_expected,
    seconds=60.0,
    mistakes=(
        Mistake(
            "Those are futures, not results: return what wait() gives for each.",
            when=lambda yours, expected, n: bool(yours[0] == "futures"),
        ),
        Mistake(
            "One call begins when the one before it has ended. Start all of them with rpc_async, "
            "and wait only then.",
            when=lambda yours, expected, n: yours[0] == (_names(n), "one after the other"),
        ),
        Mistake(
            "One rank is missing: ask yourself too, a process may call itself.",
            when=lambda yours, expected, n: yours[0][0] == _names(n)[1:],
        ),
    ),
    hints=(
        "rpc_sync waits for its answer, so the next call cannot begin. rpc_async does not.",
        "First a list of futures, one for each rank; then, in the same order, their results.",
        'futures = [rpc.rpc_async(f"rank{r}", function) for r in range(world_size)]; return '
        "[future.wait() for future in futures].",
    ),
)


# -- 13-2: lose no update ---------------------------------------------------------------------

#: Seconds that reading the cell takes: long enough for all threads to have read.
READING = 0.3
#: Calls that each rank but rank 0 makes at once.
CALLS = 2


class _Cell:
    """Hold a number that takes a while to read."""

    def __init__(self) -> None:
        self.number = 0

    def read(self) -> int:
        number = self.number
        time.sleep(READING)
        return number

    def write(self, number: int) -> None:
        self.number = number


def _add(amount: int, seconds: float) -> Any:
    """Call the answer here, on rank 0: its number, "nothing" for None, or what went wrong."""
    cell, lock = _here["cell"], _here["lock"]
    value = _attempt(_here["answer"], cell, lock, amount, seconds=seconds)
    if isinstance(value, Failed) and lock.locked():
        return "stuck"
    if isinstance(value, int | BaseException | Failed):
        return value
    return "nothing" if value is None else type(value).__name__


@_connected
def add_trial(answer: Callable[..., Any], here: Here) -> Any:
    rank = here.rank
    if rank == 0:
        _here.update(answer=answer, cell=_Cell(), lock=threading.Lock())
    dist.barrier()
    found: list[Any] = []
    if rank > 0:
        seconds = BOUND if here.world_size < 8 else 3 * BOUND
        asked = (10 ** (rank - 1), seconds)
        calls = [
            rpc.rpc_async("rank0", _add, args=asked, timeout=seconds + ANSWERING)
            for _ in range(CALLS)
        ]
        found = [_result(call) for call in calls]
    dist.barrier()
    if rank > 0:
        return next((f for f in found if not isinstance(f, int)), "numbers")
    _free(_here["lock"])
    return _here["cell"].number


def _result(call: Any) -> Any:
    try:
        return call.wait()
    except RuntimeError as error:
        return type(error).__name__


def _free(lock: Any) -> None:
    """Let threads go that wait for a lock that an answer never gave back."""
    for _ in range(100):
        if not any(thread.is_alive() for thread in _here.get("left", ())):
            break
        with contextlib.suppress(RuntimeError):  # nobody has it
            lock.release()
        time.sleep(0.02)


def add_expected(n: int) -> list[Any]:
    return [CALLS * sum(10**r for r in range(n - 1)), *["numbers"] * (n - 1)]


ADD = Exercise(
    id="13-2",
    title="Lose no update",
    answer="add_to",
    trial=add_trial,
    expected=add_expected,
    seconds=60.0,
    mistakes=(
        Mistake(
            "The lock was never given back, and all others wait for it: with lock: gives it back, "
            "also after an error.",
            when=lambda yours, expected, n: "stuck" in yours[1:],
        ),
        Mistake(
            "It counts right but returns nothing: return the new number.",
            when=lambda yours, expected, n: yours[0] == expected[0] and "nothing" in yours[1:],
        ),
        Mistake(
            "Nothing was added: write the sum back into the cell.",
            when=lambda yours, expected, n: yours[0] == 0 and not failed(yours),
        ),
        Mistake(
            "Updates are lost: another thread reads before you have written. Reading, adding and "
            "writing have to be one piece: all three inside the lock.",
            when=lambda yours, expected, n: not failed(yours) and 0 < yours[0] < expected[0],
        ),
    ),
    hints=(
        "What must not happen between your read and your write?",
        "with lock: begins a block in which only one thread can be at a time.",
        "with lock: total = cell.read() + amount; cell.write(total); return total.",
    ),
)


# -- 13-3: train with a server ----------------------------------------------------------------

STEPS, RATE = 3, 0.5


class _Server:
    """Hold two weights, and note how stale each gradient was."""

    def __init__(self) -> None:
        self.w = torch.tensor([8.0, -4.0])
        self.version = 0
        self.stale: list[int] = []
        self.pulls = 0

    def pull(self) -> tuple[torch.Tensor, int]:
        self.pulls += 1
        return self.w, self.version

    def push(self, g: torch.Tensor, version: int) -> None:
        self.stale.append(self.version - version)
        self.w = self.w - RATE * g
        self.version += 1


class _RRef:
    """Stand in for an RRef to rank 0's server.

    Torch's belong to the first RPC of a process: where that one was closed, as after each trial
    here, a later one cannot serve them ("RPC is no longer running on this node", torch 2.15).
    """

    def owner(self) -> rpc.WorkerInfo:
        return rpc.get_worker_info("rank0")

    def owner_name(self) -> str:
        return "rank0"

    def is_owner(self) -> bool:
        return bool(rpc.get_worker_info().name == "rank0")

    def local_value(self) -> _Server:
        if not self.is_owner():
            raise RuntimeError("local_value() is for the owner of an RRef")
        return _served()

    def to_here(self, timeout: float = -1.0) -> _Server:
        return rpc.rpc_sync("rank0", _served, timeout=timeout)

    def rpc_sync(self, timeout: float = -1.0) -> _Methods:
        return _Methods(rpc.rpc_sync, timeout)

    def rpc_async(self, timeout: float = -1.0) -> _Methods:
        return _Methods(rpc.rpc_async, timeout)

    def remote(self, timeout: float = -1.0) -> _Methods:
        return _Methods(lambda *args, **named: _Result(rpc.rpc_async(*args, **named)), timeout)


class _Methods:
    """Have the methods of the server; a call of one runs on rank 0."""

    def __init__(self, call: Callable[..., Any], timeout: float) -> None:
        self._call, self._timeout = call, timeout

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(*args: Any, **named: Any) -> Any:
            asked = (name, args, named)
            return self._call("rank0", _serve, args=asked, timeout=self._timeout)

        return method


class _Result:
    """Stand in for the RRef to a result."""

    def __init__(self, future: torch.futures.Future[Any]) -> None:
        self._future = future

    def to_here(self, timeout: float = -1.0) -> Any:
        return self._future.wait()


def _served() -> _Server:
    """Return the server, on rank 0; a copy of it to whoever calls this from elsewhere."""
    server: _Server = _here["server"]
    return server


def _serve(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return getattr(_served(), name)(*args, **named)


def _gradient(w: torch.Tensor, rank: int) -> torch.Tensor:
    """Return the gradient of half the squared distance to (rank, rank)."""
    return w - rank


@_connected
def train_trial(answer: Callable[..., Any], here: Here) -> Any:
    rank = here.rank
    if rank == 0:
        _here["server"] = _Server()
    dist.barrier()
    wrong: Any = None
    for worker in range(1, here.world_size):
        if rank == worker:
            wrong = _attempt(answer, _RRef(), lambda w: _gradient(w, rank), STEPS)
        # It has had its time: not again, n times.
        if any(_gather(isinstance(wrong, Failed), here.world_size)):
            break
    if rank > 0:
        return wrong if isinstance(wrong, BaseException | Failed) else SERVED
    return _served().w, _served().stale


def _play(n: int, stale: Callable[[int, int], int]) -> list[Any]:
    """Train in one process; ``stale(step, total)`` is how many versions a gradient is late."""
    history = [torch.tensor([8.0, -4.0])]
    late: list[int] = []
    for worker in range(1, n):
        for step in range(STEPS):
            behind = stale(step, len(late))
            g = _gradient(history[len(history) - 1 - behind], worker)
            history.append(history[-1] - RATE * g)
            late.append(behind)
    return [(history[-1], late), *[SERVED] * (n - 1)]


def train_expected(n: int) -> list[Any]:
    return _play(n, lambda step, total: 0)


TRAIN = Exercise(
    id="13-3",
    title="Train with a server",
    answer="train",
    trial=train_trial,
    expected=train_expected,
    seconds=60.0,
    mistakes=(
        Mistake(
            "server is a reference and has no pull() or push() itself: server.rpc_sync().pull() "
            "calls it at the owner.",
            when=lambda yours, expected, n: any(
                isinstance(y, Failed) and y.name == "AttributeError" and "RRef" in y.message
                for y in yours
            ),
        ),
        Mistake(
            "You fetch the weights once and go on with them: every gradient is one step staler "
            "than the one before. pull() belongs into the loop.",
            when=would_give(lambda n: _play(n, lambda step, total: step)),
        ),
        Mistake(
            "The server has seen nothing: to_here() gives you a copy, and you push into that. "
            "Call server.rpc_sync().push(...).",
            when=lambda yours, expected, n: yours[0][1] == [] and not failed(yours),
        ),
        Mistake(
            "Each worker takes one step only: pull and push steps times.",
            when=lambda yours, expected, n: len(yours[0][1]) == n - 1,
        ),
        Mistake(
            "The weights are right but the versions are not: push with the version that came "
            "with the weights.",
            when=lambda yours, expected, n: (
                yours[0][1] != expected[0][1] and bool(torch.allclose(yours[0][0], expected[0][0]))
            ),
        ),
    ),
    hints=(
        "A step is three things: fetch, compute, give back.",
        "server.rpc_sync() stands for the object at its owner: its methods run there.",
        "for _ in range(steps): w, version = server.rpc_sync().pull(); "
        "server.rpc_sync().push(gradient(w), version).",
    ),
)


# -- 13-4: how many servers -------------------------------------------------------------------

WORKERS = (2, 3, 4, 8, 64, 1000)


def servers_trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(workers) for workers in WORKERS]


def _servers(k: int) -> float:
    """Return how many servers it takes: 2kS / s bytes at each, against 4(k - 1)/k S in the ring."""
    return k * k / (2 * (k - 1))


def servers_expected() -> list[int]:
    return [math.ceil(_servers(k)) for k in WORKERS]


def _for_each(number: Callable[[int], float]) -> When:
    def when(yours: Any, expected: Any, n: int) -> bool:
        wrong = [number(k) for k in WORKERS]
        return len(yours) == len(wrong) and all(map(math.isclose, yours, wrong))

    return when


SERVERS = Exercise(
    id="13-4",
    title="How many servers?",
    answer="servers_needed",
    trial=servers_trial,
    expected=servers_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "There is no half server: round up, and return a whole number.",
            when=_for_each(_servers),
        ),
        Mistake(
            "Rounded down, each server still moves more than a rank of the ring: round up.",
            when=_for_each(lambda k: math.floor(_servers(k))),
        ),
        Mistake(
            "You count one direction of the server only: a tensor comes in and one goes out, for "
            "each worker.",
            when=_for_each(lambda k: math.ceil(_servers(k) / 2)),
        ),
        Mistake(
            "You count one direction of the ring only: its ranks receive as much as they send.",
            when=_for_each(lambda k: math.ceil(_servers(k) * 2)),
        ),
        Mistake(
            "It raises an error or gives nothing for some number of workers.",
            when=lambda yours, expected, n: isinstance(yours, Failed) or None in yours,
        ),
    ),
    hints=(
        "One server moves 2 · workers tensors. Cut into s parts, each of s servers moves an s-th.",
        "Ask for 2 · workers / s ≤ 4 · (workers - 1) / workers, and solve for s.",
        "math.ceil(workers * workers / (2 * (workers - 1)))",
    ),
)


EXERCISES = (ASK, ADD, TRAIN, SERVERS)
