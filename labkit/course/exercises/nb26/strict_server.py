"""A parameter server that takes fresh gradients only, and a stand-in for an RRef to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import rpc

from .connected import on_this_rank

STEPS, RATE = 3, 0.5
#: How far the server moves its weights itself, after which of all pulls.
MOVE, AFTER = 0.25, (2, 3, 7)
#: Gradients that may be refused one after the other.
PATIENCE = 12


class StrictServer:
    """Hold two weights, and take fresh gradients only.

    It moves the weights itself after some pulls, as other workers would.
    """

    def __init__(self) -> None:
        self.w = torch.tensor([8.0, -4.0])
        self.version = self.pulls = self.taken = self.refused = self.in_a_row = 0

    def pull(self) -> tuple[torch.Tensor, int]:
        self.pulls += 1
        given = self.w, self.version
        if self.pulls in AFTER:
            self.w, self.version = self.w + MOVE, self.version + 1
        return given

    def push(self, g: torch.Tensor, version: int) -> bool:
        fresh = version == self.version
        self.in_a_row = 0 if fresh else self.in_a_row + 1
        if self.in_a_row > PATIENCE:
            raise RuntimeError(f"{self.in_a_row} gradients in a row were refused")
        if fresh:
            self.w, self.version = self.w - RATE * g, self.version + 1
        self.taken, self.refused = self.taken + fresh, self.refused + (not fresh)
        return fresh

    def seen(self) -> list[Any]:
        """Return what is compared: weights, gradients taken and refused."""
        return [self.w, self.taken, self.refused]


class ServerRRef:
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

    def local_value(self) -> StrictServer:
        if not self.is_owner():
            raise RuntimeError("local_value() is for the owner of an RRef")
        return served()

    def to_here(self, timeout: float = -1.0) -> StrictServer:
        return rpc.rpc_sync("rank0", served, timeout=timeout)

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


def served() -> StrictServer:
    """Return the server, on rank 0; a copy of it to whoever calls this from elsewhere."""
    server: StrictServer = on_this_rank["server"]
    return server


def _serve(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return getattr(served(), name)(*args, **named)


def gradient_of(w: torch.Tensor, rank: int) -> torch.Tensor:
    """Return the gradient of half the squared distance to (rank, rank)."""
    return w - rank
