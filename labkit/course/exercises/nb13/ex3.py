"""Exercise 13-3: train against a parameter server: pull, compute, push with the version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import rpc

from ...answers import body, edit
from ...exercise import Exercise, Failed, Here, Mistake, Wrong
from ...mistakes import near, would_give
from .connected import SERVED, attempt, connected, gather, on_this_rank

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
    server: _Server = on_this_rank["server"]
    return server


def _serve(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return getattr(_served(), name)(*args, **named)


def _gradient(w: torch.Tensor, rank: int) -> torch.Tensor:
    """Return the gradient of half the squared distance to (rank, rank)."""
    return w - rank


@connected
def trial(answer: Callable[..., Any], here: Here) -> Any:
    rank = here.rank
    if rank == 0:
        on_this_rank["server"] = _Server()
    dist.barrier()
    wrong: Any = None
    for worker in range(1, here.world_size):
        if rank == worker:
            wrong = attempt(answer, _RRef(), lambda w: _gradient(w, rank), STEPS)
        # It has had its time: not again, n times.
        if any(gather(isinstance(wrong, Failed), here.world_size)):
            break
    if rank > 0:
        return wrong if isinstance(wrong, BaseException | Failed) else SERVED
    return _served().w, _served().stale


def _play(
    n: int,
    stale: Callable[[int, int], int],
    steps: int = STEPS,
    workers: Sequence[int] | None = None,
) -> list[Any]:
    """Train in one process; ``stale(step, total)`` is how many versions a gradient is late."""
    history = [torch.tensor([8.0, -4.0])]
    late: list[int] = []
    for worker in range(1, n) if workers is None else workers:
        for step in range(steps):
            behind = stale(step, len(late))
            g = _gradient(history[len(history) - 1 - behind], worker)
            history.append(history[-1] - RATE * g)
            late.append(behind)
    return [(history[-1], late), *[SERVED] * (n - 1)]


def expected(n: int) -> list[Any]:
    return _play(n, lambda step, total: 0)


def _alone(yours: Any, expected: Any, n: int) -> bool:
    """Tell whether only one of several workers has trained."""
    alone = (_play(n, lambda *_: 0, workers=[worker]) for worker in range(1, n))
    return n > 2 and any(near(yours, play) for play in alone)


EXERCISE = Exercise(
    id="13-3",
    title="Train with a server",
    answer="train",
    trial=trial,
    expected=expected,
    seconds=60.0,
    mistakes=(
        Mistake(
            "server is a reference without a pull() or push() of its own: "
            "server.rpc_sync().pull() calls the method at the owner.",
            raises=r"^AttributeError: '\w*RRef' object has no attribute",
            shown_by={
                "calls the reference": edit("rpc_sync().pull", "pull", "rpc_sync().push", "push")
            },
        ),
        Mistake(
            "You fetch the weights once and keep using them, so every gradient is one step "
            "staler than the one before. pull() belongs in the loop.",
            when=would_give(lambda n: _play(n, lambda step, total: step)),
            shown_by={
                "pulls once": edit(
                    "for _ in range(steps):",
                    """
                    w, version = server.rpc_sync().pull()
                    for _ in range(steps):
                    """,
                    "w, version = server.rpc_sync().pull()",
                    "",
                ),
            },
        ),
        Mistake(
            "No gradient has reached the server. to_here() gives you a copy, and a push into "
            "that copy stays with you: call server.rpc_sync().push(…).",
            when=lambda yours, expected, n: yours[0][1] == [],
            shown_by={
                "trains a copy": body("""
                    mine = server.to_here()
                    for _ in range(steps):
                        w, version = mine.pull()
                        mine.push(gradient(w), version)
                """),
            },
        ),
        Mistake(
            "Only one worker has trained. train runs on every worker: no rank is left out in it.",
            when=_alone,
            shown_by={
                "only rank 1": edit("range(steps)", "range(steps if rank == 1 else 0)"),
                "only the last one": edit(
                    "range(steps)", "range(steps if rank == world_size - 1 else 0)"
                ),
            },
        ),
        Mistake(
            "The server got only one gradient of each worker: every worker has to pull and push "
            "steps times.",
            when=would_give(lambda n: _play(n, lambda *_: 0, steps=1)),
            shown_by={
                "one step": body("""
                    w, version = server.rpc_sync().pull()
                    server.rpc_sync().push(gradient(w), version)
                """),
            },
        ),
        Mistake(
            "The weights are right but the versions are not: push with the version that came "
            "with the weights.",
            when=lambda yours, expected, n: (
                yours[0][1] != expected[0][1] and bool(torch.allclose(yours[0][0], expected[0][0]))
            ),
            shown_by={
                "counts its own versions": edit("for _ in", "for version in", "version =", "_ =")
            },
        ),
    ),
    also_wrong={
        "waits for its own version": Wrong(
            edit(
                """
                for _ in range(steps):
                    w, version = server.rpc_sync().pull()
                """,
                """
                w, version = server.rpc_sync().pull()
                while version < 2 * steps * world_size:
                """,
            ),
            says="TimedOut",
        ),
    },
    another=body("""
        for _ in range(steps):
            w, version = server.rpc_async().pull().wait()
            pushed = server.remote().push(gradient(w), version)
            pushed.to_here()
    """),
    hints=(
        "A step has three parts: fetch the weights, compute the gradient, push it.",
        "server.rpc_sync() stands for the object at its owner: its methods run there.",
        "pull() returns a pair. In each step, push gradient(w) together with the version of that "
        "w, through server.rpc_sync() as well.",
    ),
)
