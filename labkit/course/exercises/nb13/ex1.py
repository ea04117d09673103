"""Exercise 13-1: ask all ranks at once by RPC, and return their answers in rank order."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch.distributed import rpc

from ...answers import body, edit, whole
from ...exercise import Exercise, Here, Mistake, Wrong
from .connected import BOUND, SERVED, attempt, connected, worker_names

#: Seconds that a rank works for each question.
WORK = 0.8


def _work() -> tuple[str, float, float]:
    """Return who worked, from when, until when. All ranks of a trial are on one host, or else
    their clocks do not compare and this says nothing against the answer."""
    began = time.monotonic()
    time.sleep(WORK)
    return rpc.get_worker_info().name, began, time.monotonic()


@connected
def trial(answer: Callable[..., Any], here: Here) -> Any:
    if here.rank > 0:
        return SERVED
    return attempt(lambda: _seen(answer(_work)), seconds=here.world_size * WORK + BOUND)


def _seen(found: Any) -> Any:
    """Return who has worked in which way, or what else an answer gave."""
    if not isinstance(found, (list, tuple)):  # one result alone is a tuple, of no tuples
        return type(found).__name__
    if any(hasattr(one, "wait") for one in found):
        return "futures"
    if any(not isinstance(one, tuple) for one in found):
        return [type(one).__name__ for one in found]
    names = [name for name, _, _ in found]
    spans = [span for _, *span in found]
    apart = any(a[1] <= b[0] for a in spans for b in spans)
    return names, "one after the other" if apart else "at once"


def expected(n: int) -> list[Any]:
    return [(worker_names(n), "at once"), *[SERVED] * (n - 1)]


EXERCISE = Exercise(
    id="13-1",
    title="Ask everybody at once",
    answer="ask_all",
    setup="from torch.distributed import rpc",
    trial=trial,
    expected=expected,
    seconds=60.0,
    mistakes=(
        Mistake(
            "Those are futures, not results: return what wait() gives for each.",
            when=lambda yours, expected, n: bool(yours[0] == "futures"),
            shown_by={
                "returns futures": body(
                    'return [rpc.rpc_async(f"rank{r}", function) for r in range(world_size)]'
                )
            },
        ),
        Mistake(
            "Each call begins only after the one before it has ended. Start all of them with "
            "rpc_async, and only then wait.",
            when=lambda yours, expected, n: yours[0] == (worker_names(n), "one after the other"),
            shown_by={
                "one after the other": body(
                    'return [rpc.rpc_sync(f"rank{r}", function) for r in range(world_size)]'
                ),
                "waits at once": body("""
                    return [rpc.rpc_async(f"rank{r}", function).wait() for r in range(world_size)]
                """),
            },
        ),
        Mistake(
            "Rank 0, the caller, is missing: call your own rank too, a process may call itself.",
            when=lambda yours, expected, n: yours[0][0] == worker_names(n)[1:],
            shown_by={"only the others": edit("world_size", "1, world_size")},
        ),
    ),
    also_wrong={
        "a wrong name": Wrong(edit("rank{r}", "worker{r}"), says="RuntimeError"),
    },
    another=whole("""
        import torch.futures


        def ask_all(function):
            futures = [rpc.rpc_async(r, function) for r in range(world_size)]
            return tuple(torch.futures.wait_all(futures))
    """),
    hints=(
        "rpc_sync waits for its answer, so the next call cannot begin. rpc_async does not.",
        "First a list of futures, one for each rank; then, in the same order, their results.",
        'rpc.rpc_async(f"rank{r}", function) gives a future, and wait() its result. Do not '
        "wait while you make the list of futures.",
    ),
)
