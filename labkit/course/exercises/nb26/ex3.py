"""Exercise 26-3: train against a parameter server that refuses stale gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Failed, Here, Mistake
from ...mistakes import near
from .connected import attempt, connected, gather, on_this_rank, quiet
from .strict_server import STEPS, ServerRRef, StrictServer, gradient_of, served


@connected
def trial(answer: Callable[..., Any], here: Here) -> Any:
    rank = here.rank
    if rank == 0:
        on_this_rank["server"] = StrictServer()
    dist.barrier()
    with quiet() if rank == 0 else contextlib.nullcontext():
        returned = _train_in_turn(answer, here)
    return served().seen() if rank == 0 else returned


def _train_in_turn(answer: Callable[..., Any], here: Here) -> Any:
    """Make one worker after the other train; return what the answer gives on this rank."""
    rank, returned = here.rank, None
    for worker in range(1, here.world_size):
        if rank == worker:
            returned = attempt(answer, ServerRRef(), lambda w: gradient_of(w, rank), STEPS)
        # It has had its time: not again, n times.
        if any(gather(isinstance(returned, BaseException | Failed), here.world_size)):
            break
    return returned


def _train(server: StrictServer, rank: int, *, again: bool) -> int:
    """Train as a worker in the server's process; ``again`` tells whether refused gradients count
    for nothing. Return how many were refused."""
    taken = refused = 0
    while taken + (0 if again else refused) < STEPS:
        w, version = server.pull()
        fresh = server.push(gradient_of(w, rank), version)
        taken, refused = taken + fresh, refused + (not fresh)
    return refused


def _play(n: int, workers: Sequence[int] | None = None, *, again: bool = True) -> list[Any]:
    """Train in one process, worker after worker."""
    server, returned = StrictServer(), [0] * n
    for rank in range(1, n) if workers is None else workers:
        returned[rank] = _train(server, rank, again=again)
    return [server.seen(), *returned[1:]]


def expected(n: int) -> list[Any]:
    return _play(n)


def _alone(yours: Any, expected: Any, n: int) -> bool:
    """Return whether only one of several workers has trained."""
    server = yours[0]
    alone = (_play(n, [worker])[0] for worker in range(1, n))
    return n > 2 and any(near(server, simulate) for simulate in alone)


def _refused_for_good(yours: Any, expected: Any, n: int) -> bool:
    """Return whether refused gradients were not made good."""
    wrong = _play(n, again=False)
    return near(yours[0], wrong[0]) and not near(wrong[0], expected[0])


EXERCISE = Exercise(
    id="26-3",
    title="Train with a strict server",
    answer="train",
    setup="""
from collections.abc import Callable

import torch
from torch.distributed import rpc
""",
    trial=trial,
    expected=expected,
    entries=("the server's weights", "gradients taken", "gradients refused"),
    seconds=60.0,
    mistakes=(
        Mistake(
            "server is a reference without a pull() or push() of its own: "
            "server.rpc_sync().pull() calls the method at the owner.",
            raises=r"^AttributeError: '\w*RRef' object has no attribute",
        ),
        Mistake(
            "The server has refused many gradients in a row. A gradient that was refused stays "
            "stale: pull again, and compute a new one at the new weights.",
            raises=r"^RuntimeError: [\s\S]*gradients in a row were refused",
        ),
        Mistake(
            "A refused gradient took no step, but you count it as one of your steps: go on until "
            "the server has taken steps gradients.",
            when=_refused_for_good,
        ),
        Mistake(
            "The server took a gradient that you had computed at older weights: the version that "
            "you push must be the one that came with those weights.",
            when=lambda yours, expected, n: (
                yours[0][1] == expected[0][1] and not torch.allclose(yours[0][0], expected[0][0])
            ),
        ),
        Mistake(
            "No gradient has reached the server. to_here() gives you a copy, and a push into "
            "that copy stays with you: call server.rpc_sync().push(…).",
            when=lambda yours, expected, n: yours[0][1:] == [0, 0],
        ),
        Mistake(
            "Only one worker has trained. train runs on every worker: no rank is left out in it.",
            when=_alone,
        ),
        Mistake(
            "The server has all gradients, but train returns something else than how many it "
            "refused.",
            when=lambda yours, expected, n: (
                near(yours[0], expected[0]) and not near(yours[1:], expected[1:])
            ),
        ),
    ),
    hints=(
        "Each attempt has three parts: fetch the weights, compute the gradient there, push it.",
        "server.rpc_sync() stands for the object at its owner: its methods run there. What push() "
        "returns tells whether this attempt was a step.",
        "You don't know how many attempts it takes: loop while fewer than steps gradients were "
        "taken, with one count for taken and one for refused.",
    ),
)
