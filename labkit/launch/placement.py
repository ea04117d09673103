"""Decide which device and backend each rank gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..wire.state import ProcessFacts

#: From this version on, NCCL takes several ranks on one GPU when told to.
NCCL_SHARES_GPU = (2, 30)
#: What it is then told: on every rank, since each checks all the others (``initTransportsRank`` in
#: NCCL's init.cc). The kernels of all ranks of a GPU have to run at the same time, or NCCL hangs:
#: its documentation promises that for two ranks, and advises fewer blocks per rank for more.
SHARING = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}


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
    shares_memory: bool = False  #: with the notebook


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
        launcher's own numbering. Rank i of a host gets GPU i modulo those that it sees. The
        backend is NCCL where every rank has a GPU of its own or NCCL can share one; else gloo,
        which moves CUDA tensors too; and it is the same on every rank, as are NCCL's settings.
    """

    def order(engine: int) -> tuple[int, int]:
        hint = engines[engine].hint
        return (engine if hint is None else hint, engine)

    by_host: dict[str, list[int]] = {}
    for engine in sorted(engines, key=order):
        by_host.setdefault(engines[engine].host, []).append(engine)
    shared = any(_share_gpus(engines, members) for members in by_host.values())
    backend = _backend(engines, shared=shared)
    settings = SHARING if backend == "nccl" and shared else {}
    places: list[Place] = []
    for host, members in by_host.items():
        for local_rank, engine in enumerate(members):
            facts = engines[engine]
            gpus = len(facts.gpus)
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
                    environment={
                        "LOCAL_RANK": str(local_rank),
                        "LOCAL_WORLD_SIZE": str(len(members)),
                        **settings,
                    },
                    shares_memory=facts.shares_memory,
                )
            )
    return places


def warnings(places: Sequence[Place]) -> list[str]:
    """Return what ranks cannot do where they are."""
    if any(place.backend == "gloo" and place.device != "cpu" for place in places):
        wanted = ".".join(map(str, NCCL_SHARES_GPU))
        return [
            "ranks on GPUs use gloo here, which has collectives for tensors on a GPU, but neither "
            "send nor recv: move what you send to the CPU first. NCCL has both; it needs a GPU "
            f"per rank, or version {wanted} to share one."
        ]
    return []


def _share_gpus(engines: Mapping[int, ProcessFacts], members: Sequence[int]) -> bool:
    """Return whether ranks of one host have a GPU in common.

    Not by their number: Slurm and MPI can let each rank see another GPU, as its ``cuda:0``.
    """
    seen = [engines[engine].gpus for engine in members]
    used = [gpus[local_rank % len(gpus)] for local_rank, gpus in enumerate(seen) if gpus]
    return len(set(used)) < len(used)


def _backend(engines: Mapping[int, ProcessFacts], *, shared: bool) -> str:
    for facts in engines.values():
        if not facts.gpus or facts.nccl is None:
            return "gloo"
        if shared and facts.nccl[:2] < NCCL_SHARES_GPU:
            return "gloo"
    return "nccl"
