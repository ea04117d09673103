"""One table: which engines there are, which rank, device and backend they get."""

import pytest

from labkit.launch.placement import place_ranks, warnings
from labkit.wire.state import ProcessFacts


def engine(host="a", gpus=0, nccl=None, hint=None, cores=8, pid=1):
    """Describe a process that sees so many GPUs, or those."""
    seen = tuple(map(str, range(gpus) if isinstance(gpus, int) else gpus))
    return ProcessFacts(host, pid, hint, seen, nccl and tuple(nccl), cores)


CASES = {
    "no GPU": ([engine()] * 3, ["cpu"] * 3, "gloo"),
    "a GPU for each": ([engine(gpus=2, nccl=[2, 28, 3])] * 2, ["cuda:0", "cuda:1"], "nccl"),
    "more GPUs than ranks": ([engine(gpus=8, nccl=[2, 28, 3])], ["cuda:0"], "nccl"),
    "new NCCL shares a GPU": (
        [engine(gpus=2, nccl=[2, 30, 7])] * 4,
        ["cuda:0", "cuda:1", "cuda:0", "cuda:1"],
        "nccl",
    ),
    "old NCCL does not": ([engine(gpus=1, nccl=[2, 29, 9])] * 2, ["cuda:0", "cuda:0"], "gloo"),
    "GPUs without NCCL": ([engine(gpus=2)] * 2, ["cuda:0", "cuda:1"], "gloo"),
    "four GPUs": (
        [engine(gpus=4, nccl=[2, 28, 3])] * 4,
        ["cuda:0", "cuda:1", "cuda:2", "cuda:3"],
        "nccl",
    ),
    "eight GPUs": (
        [engine(gpus=8, nccl=[2, 28, 3])] * 8,
        [f"cuda:{i}" for i in range(8)],
        "nccl",
    ),
    "three ranks on two GPUs": (
        [engine(gpus=2, nccl=[2, 30, 7])] * 3,
        ["cuda:0", "cuda:1", "cuda:0"],
        "nccl",
    ),
    "a slice of a GPU": ([engine(gpus=["MIG-1"], nccl=[2, 30, 7])] * 2, ["cuda:0"] * 2, "nccl"),
    "each rank sees a GPU of its own": (
        [engine(gpus=[i], nccl=[2, 28, 3]) for i in range(4)],
        ["cuda:0"] * 4,
        "nccl",
    ),
    "each pair of ranks sees a GPU of its own": (
        [engine(gpus=[i // 2], nccl=[2, 28, 3]) for i in range(4)],
        ["cuda:0"] * 4,
        "gloo",
    ),
    "the same GPUs in another order": (
        [engine(gpus=[0, 1], nccl=[2, 28, 3]), engine(gpus=[1, 0], nccl=[2, 28, 3])],
        ["cuda:0", "cuda:1"],
        "gloo",
    ),
    "two hosts": (
        [engine("a", 2, [2, 28, 0]), engine("b", 2, [2, 28, 0]), engine("a", 2, [2, 28, 0])],
        ["cuda:0", "cuda:1", "cuda:0"],
        "nccl",
    ),
    "one host without a GPU": (
        [engine("a", 1, [2, 30, 0]), engine("b")],
        ["cuda:0", "cpu"],
        "gloo",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_device_and_backend(name):
    engines, devices, backend = CASES[name]
    places = place_ranks(dict(enumerate(engines)))
    assert [p.device for p in places] == devices
    assert {p.backend for p in places} == {backend}
    assert [p.rank for p in places] == list(range(len(engines)))
    on_gpus = any(device != "cpu" for device in devices)
    assert len(warnings(places)) == (on_gpus and backend == "gloo")


def test_ranks_of_a_host_are_neighbours():
    engines = {i: engine("ab"[i % 2]) for i in range(6)}
    places = place_ranks(engines)
    assert [p.host for p in places] == ["a"] * 3 + ["b"] * 3
    assert [p.local_rank for p in places] == [0, 1, 2, 0, 1, 2]
    assert [p.environment["LOCAL_RANK"] for p in places] == list("012012")


def test_launchers_own_numbering_wins_over_engine_ids():
    places = place_ranks({7: engine(hint=1), 9: engine(hint=0)})
    assert [p.engine for p in places] == [9, 7]


def test_cores_are_shared_and_nobody_gets_none():
    assert {p.threads for p in place_ranks({i: engine(cores=8) for i in range(4)})} == {2}
    assert {p.threads for p in place_ranks({i: engine(cores=2) for i in range(4)})} == {1}


def test_sharing_a_gpu_sets_the_switch_that_nccl_wants():
    shared = place_ranks({i: engine(gpus=1, nccl=[2, 30, 7]) for i in range(2)})
    alone = place_ranks({i: engine(gpus=2, nccl=[2, 30, 7]) for i in range(2)})
    bound = place_ranks({i: engine(gpus=[i], nccl=[2, 30, 7]) for i in range(2)})
    assert all(p.environment.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1" for p in shared)
    assert not any("NCCL_MULTI_RANK_GPU_ENABLE" in p.environment for p in alone + bound)


def test_every_rank_is_told_that_some_share_a_gpu():
    hosts = {0: engine("a", 2, [2, 30, 7]), 1: engine("b", 1, [2, 30, 7])}
    hosts[2] = engine("b", 1, [2, 30, 7])
    assert all("NCCL_MULTI_RANK_GPU_ENABLE" in p.environment for p in place_ranks(hosts))
    hosts[2] = engine("b", 1, [2, 28, 3])
    assert {p.backend for p in place_ranks(hosts)} == {"gloo"}
    assert not any("NCCL_MAX_CTAS" in p.environment for p in place_ranks(hosts))
