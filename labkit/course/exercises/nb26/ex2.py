"""Exercise 26-2: add to a shared number under a lock, and lose no update."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch.distributed as dist
from torch.distributed import rpc

from ....base import times
from ...exercise import Exercise, Failed, Here, Mistake
from .connected import attempt, connected, gather, on_this_rank

#: Seconds that reading the cell takes: long enough for all threads to have read.
READING = 0.2
#: Seconds that pass until what is written is there, so that who reads meanwhile reads the old.
WRITING = 0.2
#: Seconds that a thread which gives the lock back leaves to those that wait for it: enough for
#: one of them to read and write.
HANDOVER = 0.5
#: Calls that each rank but rank 0 makes at once.
CALLS = 2
#: What the cell holds at first.
BEGIN = 5000


class _Cell:
    """Hold a number that takes a while to read and to write."""

    def __init__(self) -> None:
        self.number = BEGIN

    def read(self) -> int:
        number = self.number
        time.sleep(READING)
        return number

    def write(self, number: int) -> None:
        time.sleep(WRITING)
        self.number = number


class _Lock:
    """A ``threading.Lock`` that those get first who wait for it.

    A plain one may go to the same thread again and again, and two locked pieces count right then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acquire, self.locked = self._lock.acquire, self._lock.locked

    def release(self) -> None:
        self._lock.release()
        time.sleep(HANDOVER)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def _add(amount: int, seconds: float) -> Any:
    """Call the answer here, on rank 0: its number, "nothing" for None, or what went wrong."""
    cell, lock = on_this_rank["cell"], on_this_rank["lock"]
    value = attempt(on_this_rank["answer"], cell, lock, amount, seconds=seconds)
    if isinstance(value, Failed) and lock.locked():
        return "stuck"
    if isinstance(value, int | BaseException | Failed):
        return value
    return "nothing" if value is None else type(value).__name__


@connected
def trial(answer: Callable[..., Any], here: Here) -> Any:
    rank = here.rank
    if rank == 0:
        on_this_rank.update(answer=answer, cell=_Cell(), lock=_Lock())
    dist.barrier()
    found: list[Any] = []
    if rank > 0:
        seconds = times.RPC_TRIED.seconds() * (3 if here.world_size >= 8 else 1)
        asked = (10 ** (rank - 1), seconds)
        calls = [
            rpc.rpc_async("rank0", _add, args=asked, timeout=seconds + times.RPC_ANSWER.seconds())
            for _ in range(CALLS)
        ]
        found = [_result(call) for call in calls]
    given = [number for numbers in gather(found, here.world_size) for number in numbers]
    if rank > 0:
        return next((f for f in found if not isinstance(f, int)), "numbers")
    _free(on_this_rank["lock"])
    return [on_this_rank["cell"].number, _are_sums(given, here.world_size)]


def _are_sums(given: list[Any], n: int) -> bool:
    """Return whether the numbers that the calls returned are those that the cell went through: each
    exceeds the one before by what one of the calls has added."""
    if not all(isinstance(number, int) for number in given):
        return False
    steps = [after - before for before, after in pairwise([BEGIN, *sorted(given)])]
    return sorted(steps) == sorted(CALLS * [10 ** (rank - 1) for rank in range(1, n)])


def _result(call: Any) -> Any:
    try:
        return call.wait()
    except RuntimeError as error:
        return type(error).__name__


def _free(lock: Any) -> None:
    """Release threads that wait for a lock which an answer never gave back."""
    for _ in range(100):
        if not any(thread.is_alive() for thread in on_this_rank.get("left", ())):
            break
        with contextlib.suppress(RuntimeError):  # nobody has it
            lock.release()
        time.sleep(times.THREADS_LOOK)


def expected(n: int) -> list[Any]:
    total = BEGIN + CALLS * sum(10**r for r in range(n - 1))
    return [[total, True], *["numbers"] * (n - 1)]


EXERCISE = Exercise(
    id="26-2",
    title="Lose no update",
    answer="add_to",
    setup="""
import threading
from typing import Any
""",
    trial=trial,
    expected=expected,
    seconds=60.0,
    entries=("the cell at the end", "the calls return the sums that they wrote"),
    mistakes=(
        Mistake(
            "The lock is never released, and all other threads wait for it. A block under `with "
            "lock:` releases it at its end, also after an error.",
            when=lambda yours, expected, n: "stuck" in yours[1:],
        ),
        Mistake(
            "The number in the cell is right, but nothing is returned: return the number that "
            "you wrote.",
            when=lambda yours, expected, n: (
                yours[0][0] == expected[0][0] and "nothing" in yours[1:]
            ),
        ),
        Mistake(
            "Nothing was added: write the sum back into the cell.",
            when=lambda yours, expected, n: yours[0][0] == BEGIN,
        ),
        Mistake(
            "What the cell held at first is gone: add to the number that read() gives.",
            when=lambda yours, expected, n: 0 < yours[0][0] < BEGIN,
        ),
        Mistake(
            "Updates are lost: another thread reads before you have written. Read, add and write "
            "in one block, while you hold the lock that was passed.",
            when=lambda yours, expected, n: BEGIN < yours[0][0] < expected[0][0],
        ),
        Mistake(
            "No update is lost, but a call returns a different number from the one it wrote: "
            "return the sum that you wrote.",
            when=lambda yours, expected, n: (
                yours[0] == [expected[0][0], False] and set(yours[1:]) == {"numbers"}
            ),
        ),
    ),
    hints=(
        "What must not happen between your read and your write?",
        "In a block under `with lock:`, there is only one thread at a time.",
        "One block for everything from cell.read() to cell.write(…). The sum is needed twice, so "
        "keep it in a variable.",
    ),
)
