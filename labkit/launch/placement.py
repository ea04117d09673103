"""Decide which device and backend each rank gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..wire.state import ProcessFacts

#: From this version on, NCCL takes several ranks on one GPU when told to.
NCCL_SHARES_GPU = (2, 30)


@dataclass(frozen=True)
class Place:
    """Where one rank runs."""

    rank: int
    engine: int  #: ipyparallel's engine id
    host: str
    pid: int
    local_rank: int  #: place among the ranks of this host
    local_size: int
    device: str  #: "cpu" or "cuda:i"
    backend: str  #: "gloo" or "nccl"
    threads: int  #: threads inside one torch operation
    hint: int | None = None  #: the launcher's own number for this process
    environment: Mapping[str, str] = field(default_factory=dict)


def place_ranks(engines: Mapping[int, ProcessFacts]) -> list[Place]:
    """Give every engine a rank, a device and a backend.

    Parameters
    ----------
    engines
        What each process says of itself, by engine id.

    Returns
    -------
    list of Place
        In rank order. Ranks of one host are neighbours, and within a host they follow the
        launcher's own numbering. Rank i of a host gets GPU i modulo the host's GPUs. The
        backend is NCCL where every rank has a GPU of its own or NCCL can share one; else gloo,
        which moves CUDA tensors too; and it is the same on every rank.
    """

    def order(engine: int) -> tuple[int, int]:
        hint = engines[engine].hint
        return (engine if hint is None else hint, engine)

    by_host: dict[str, list[int]] = {}
    for engine in sorted(engines, key=order):
        by_host.setdefault(engines[engine].host, []).append(engine)
    backend = _backend(engines, by_host)
    places: list[Place] = []
    for host, members in by_host.items():
        for local_rank, engine in enumerate(members):
            facts = engines[engine]
            gpus = facts.gpus
            environment = {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(len(members))}
            if backend == "nccl" and gpus < len(members):
                environment["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
            places.append(
                Place(
                    rank=len(places),
                    engine=engine,
                    host=host,
                    pid=facts.pid,
                    local_rank=local_rank,
                    local_size=len(members),
                    device=f"cuda:{local_rank % gpus}" if gpus else "cpu",
                    backend=backend,
                    threads=max(1, facts.cores // len(members)),
                    hint=facts.hint,
                    environment=environment,
                )
            )
    return places


def _backend(engines: Mapping[int, ProcessFacts], by_host: Mapping[str, Sequence[int]]) -> str:
    for members in by_host.values():
        for engine in members:
            gpus, nccl = engines[engine].gpus, engines[engine].nccl
            if not gpus or nccl is None:
                return "gloo"
            if gpus < len(members) and nccl[:2] < NCCL_SHARES_GPU:
                return "gloo"
    return "nccl"
