"""The exercises of notebook 13: calls at once, a lock, a worker of a parameter server.

The ranks call each other, so RPC is opened for a check where no cell has opened it; it stays open.
Functions and classes that travel by RPC are those of this module, which every rank can import.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import rpc

from .exercise import Exercise, Failed, Mistake
from .mistakes import When, failed, would_give

#: Seconds that a call of a trial may take.
BOUND = 6.0
#: What rank 0 does not return itself.
SERVED = "served"
#: What is on this rank for the length of a trial: the others' calls find it here.
_here: dict[str, Any] = {}


def _open(rank: int, n: int) -> None:
    """Open RPC on every rank, unless it is open."""
    if rpc._is_current_rpc_agent_set():
        return
    place = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(place, src=0)
    if "GLOO_SOCKET_IFNAME" in os.environ:
        os.environ.setdefault("TP_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{place[0]}/rpc", rpc_timeout=30)
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=n, rpc_backend_options=options)


def _has(index: int, wanted: Any) -> When:
    """Return the predicate of a mistake that one rank's value shows."""
    return lambda yours, expected, n: bool(yours[index] == wanted)


# -- 13-1: ask everybody at once --------------------------------------------------------------

#: Seconds that a rank works for each question.
WORK = 0.8


def _work() -> tuple[str, float, float]:
    """Return who worked, from when, until when. All ranks of a trial are on one host, or else
    their clocks do not compare and this says nothing against the answer."""
    began = time.monotonic()
    time.sleep(WORK)
    return rpc.get_worker_info().name, began, time.monotonic()


def ask_trial(answer: Callable[..., Any], rank: int, n: int) -> Any:
    _open(rank, n)
    if rank > 0:
        return SERVED
    found = answer(_work)
    if not isinstance(found, list):
        return type(found).__name__
    if any(not isinstance(one, tuple) for one in found):
        return "futures"
    names = [name for name, _, _ in found]
    spans = [span for _, *span in found]
    apart = any(a[1] <= b[0] for a in spans for b in spans)
    return names, "one after the other" if apart else "at once"


def _names(n: int) -> list[str]:
    return [f"rank{r}" for r in range(n)]


def ask_expected(n: int) -> list[Any]:
    return [(_names(n), "at once"), *[SERVED] * (n - 1)]


ASK = Exercise(
    id="13-1",
    title="Ask everybody at once",
    answer="ask_all",
    trial=ask_trial,
    expected=ask_expected,
    mistakes=(
        Mistake(
            "Those are futures, not results: return what wait() gives for each.",
            when=_has(0, "futures"),
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


def _add(amount: int) -> Any:
    """Call the answer here, on rank 0."""
    return _here["answer"](_here["cell"], _here["lock"], amount)


def add_trial(answer: Callable[..., Any], rank: int, n: int) -> Any:
    _open(rank, n)
    cell = _Cell()
    if rank == 0:
        _here.update(answer=answer, cell=cell, lock=threading.Lock())
    dist.barrier()
    if rank > 0:
        seconds = BOUND if n < 8 else 3 * BOUND
        calls = [
            rpc.rpc_async("rank0", _add, args=(10 ** (rank - 1),), timeout=seconds)
            for _ in range(CALLS)
        ]
        found = [_result(call) for call in calls]
    dist.barrier()
    if rank == 0:
        _free(_here["lock"])
    else:
        return next((f for f in found if not isinstance(f, int)), "numbers")
    return cell.number


def _free(lock: Any) -> None:
    """Let go of threads that wait for a lock that an answer never gave back."""
    for _ in range(100):
        if not lock.locked():
            return
        lock.release()
        time.sleep(0.02)


def _result(call: Any) -> Any:
    """Wait for a call: its value, "nothing" for None, or what went wrong."""
    try:
        value = call.wait()
    except Exception as error:
        return "stuck" if "timeout" in str(error) else type(error).__name__
    return "nothing" if value is None else value


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
            when=_has(0, 0),
        ),
        Mistake(
            "Updates are lost: another thread reads before you have written. Reading, adding and "
            "writing have to be one piece: all three inside the lock.",
            when=lambda yours, expected, n: isinstance(yours[0], int) and yours[0] < expected[0],
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


def _keep(server: Any) -> None:
    _here["server"] = server


def _gradient(w: torch.Tensor, rank: int) -> torch.Tensor:
    """Return the gradient of half the squared distance to (rank, rank)."""
    return w - rank


def train_trial(answer: Callable[..., Any], rank: int, n: int) -> Any:
    _open(rank, n)
    if rank == 0:
        _keep(rpc.RRef(_Server()))
        for name in _names(n)[1:]:
            rpc.rpc_sync(name, _keep, args=(_here["server"],))
    dist.barrier()
    wrong = None
    for worker in range(1, n):
        if rank == worker:
            try:
                answer(_here["server"], lambda w: _gradient(w, rank), STEPS)
            except Exception as error:  # the others are waiting: raised when all have had a turn
                wrong = error
        dist.barrier()
    if wrong is not None:
        raise wrong
    if rank > 0:
        return SERVED
    server = _here["server"].local_value()
    return server.w, server.stale


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


def servers_trial(answer: Callable[..., Any]) -> list[Any]:
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
