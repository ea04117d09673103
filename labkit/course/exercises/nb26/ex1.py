"""Exercise 26-1: ask all ranks at once by RPC, and go without those that fail or are late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import rpc

from ....base import times
from ...exercise import Exercise, Failed, Here, Mistake
from .connected import SERVED, attempt, connected, quiet, worker_names

#: Seconds that a rank works for each question.
WORK = 0.8
#: Seconds that a caller has to wait for all, and for one that is too late.
PLENTY, DEADLINE = 20.0, 1.5
#: Seconds after which the late one answers, to a caller that waits for it.
LATE = 4.0
#: What the late one answers.
TOO_LATE = "too late"
#: A mark of something that is neither a result nor None.
OTHER = "an object of type "

#: Set when the late one need not wait any longer.
_released = threading.Event()


def _work() -> tuple[str, float, float]:
    """Return who worked, from when, until when. All ranks of a trial are on one host, or else
    their clocks do not compare and this says nothing against the answer."""
    began = time.monotonic()
    time.sleep(WORK)
    return rpc.get_worker_info().name, began, time.monotonic()


def _fail_on_rank_1() -> str:
    name = str(rpc.get_worker_info().name)
    if name == "rank1":
        raise ValueError("rank 1 fails in this case")
    return name


class _LateOn:
    """A function that is late on one rank."""

    def __init__(self, late: str) -> None:
        self.late = late

    def __call__(self) -> str:
        name = str(rpc.get_worker_info().name)
        if name != self.late:
            return name
        _released.wait(LATE)
        return TOO_LATE


def _release() -> None:
    _released.set()


@connected
def trial(answer: Callable[..., Any], here: Here) -> Any:
    _released.clear()
    if here.rank > 0:
        with quiet():
            dist.barrier()
        return SERVED
    found = _ask(answer, here)
    dist.barrier()
    return found


def _ask(answer: Callable[..., Any], here: Here) -> Any:
    """Return what rank 0 gets in each case, or the first error."""
    last = f"rank{here.world_size - 1}"
    asked: list[tuple[Callable[[], Any], float]] = [(_work, PLENTY), (_fail_on_rank_1, PLENTY)]
    if here.world_size > 1:
        asked.append((_LateOn(last), DEADLINE))
    found: list[Any] = []
    for function, seconds in asked:
        limit = here.world_size * WORK + times.RPC_TRIED.seconds()
        value = attempt(answer, function, seconds, seconds=limit)
        if isinstance(value, BaseException | Failed):
            return value
        found.append(_seen(value))
        if len(found) == 1 and found != expected(here.world_size)[0][:1]:
            break  # the other cases would say no more
    rpc.rpc_sync(last, _release, timeout=times.RPC_ANSWER.seconds())
    return found


def _seen(found: Any) -> Any:
    """Return who has answered, and when all worked at once; or what else an answer gave."""
    if not isinstance(found, list | tuple) or _is_work(found):  # one result alone is a tuple
        return type(found).__name__
    if any(hasattr(one, "wait") for one in found):
        return "futures"
    if not found or not any(map(_is_work, found)):
        return [
            one if one is None or isinstance(one, str) else OTHER + type(one).__name__
            for one in found
        ]
    spans = [one[1:] for one in found if _is_work(one)]
    apart = any(a[1] <= b[0] for a in spans for b in spans)
    names = [one[0] if _is_work(one) else one for one in found]
    return names, "one after the other" if apart else "at once"


def _is_work(one: Any) -> bool:
    return isinstance(one, tuple) and len(one) == 3 and isinstance(one[1], float)


def expected(n: int) -> list[Any]:
    names = worker_names(n)
    failed: list[Any] = [None if name == "rank1" else name for name in names]
    found: list[Any] = [(names, "at once"), failed]
    if n > 1:
        found.append([*names[:-1], None])
    return [found, *[SERVED] * (n - 1)]


def _entries(n: int) -> tuple[str, ...]:
    cases = (
        f"ask_all(work, {PLENTY:g})",
        f"ask_all(fails on rank 1, {PLENTY:g})",
        f"ask_all(late on rank {n - 1}, {DEADLINE:g})",
    )
    return cases if n > 1 else cases[:2]


EXERCISE = Exercise(
    id="26-1",
    title="Ask everybody, with a deadline",
    answer="ask_all",
    setup="""
from collections.abc import Callable

from torch.distributed import rpc
""",
    trial=trial,
    expected=expected,
    entries=_entries,
    seconds=90.0,
    mistakes=(
        Mistake(
            "Those are futures, not results: return what wait() gives for each.",
            when=lambda yours, expected, n: yours[0][0] == "futures",
        ),
        Mistake(
            "Each call begins only after the one before it has ended. Start all of them with "
            "rpc_async, and only then wait.",
            when=lambda yours, expected, n: yours[0][0] == (worker_names(n), "one after the other"),
        ),
        Mistake(
            "There is no result yet when you look: done() does not wait. Call wait() on every "
            "future.",
            when=lambda yours, expected, n: yours[0][0] == [None] * n,
        ),
        Mistake(
            "Rank 0, the caller, is missing: call your own rank too, a process may call itself.",
            when=lambda yours, expected, n: yours[0][0] == (worker_names(n)[1:], "at once"),
        ),
        Mistake(
            "The function raised an error on rank 1, and wait() raised it again in your code. "
            "Catch it, whatever its type, and put None in its place.",
            raises=r"^ValueError: [\s\S]*rank 1 fails in this case",
        ),
        Mistake(
            "A call that is not answered in time raises an error too, in wait(): put None in its "
            "place.",
            raises=r"^RuntimeError: [\s\S]*ran for more than set timeout",
        ),
        Mistake(
            "The result of a call that raised an error, or was too late, is to be None.",
            when=lambda yours, expected, n: any(
                str(one).startswith(OTHER) for case in yours[0][1:] for one in case
            ),
        ),
        Mistake(
            "A result is missing from the list: every rank has its place in it, with None where "
            "there is no result.",
            when=lambda yours, expected, n: (
                yours[0][0] == expected[0][0] and len(yours[0][1]) == n - 1
            ),
        ),
        Mistake(
            "You waited for the last rank longer than seconds allows. Each call takes a timeout of "
            "its own: rpc_async(…, timeout=…).",
            when=lambda yours, expected, n: TOO_LATE in yours[0][-1],
        ),
    ),
    hints=(
        "rpc_sync waits for its answer, so the next call cannot begin. rpc_async does not.",
        "First a list of futures, one per rank; then, in the same order, what each of them gives. "
        "Errors and timeouts appear where you wait.",
        "wait() needs a try of its own for each future, so a small function for one future helps. "
        "The time limit is an argument of the call, not of wait().",
    ),
)
