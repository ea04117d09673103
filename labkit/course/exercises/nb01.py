"""The exercises of notebooks 01 and 01b: forming a process group, and groups within it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import BackendConfig

from ..exercise import Exercise, Failed, Goal, Here, Mistake
from ..mistakes import failed

#: What a wait on the store of a trial may take, in seconds: an answer that waits in vain ends.
STORE_SECONDS = 4
#: How much later than the others one rank comes to a meeting, in seconds.
LATE_SECONDS = 0.3


@contextmanager
def _shared_store(rank: int, world_size: int) -> Iterator[dist.Store]:
    """Give the ranks of a trial one new TCPStore, which rank 0 serves until all have left.

    Raises
    ------
    RuntimeError
        If the ranks are in no process group: it carries the number of the port.
    """
    if not dist.is_initialized():
        raise RuntimeError(
            "The ranks are in no process group: run the cell above that calls init_process_group."
        )
    limit = timedelta(seconds=STORE_SECONDS)
    ports: list[Any] = [None]
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=limit)
        ports = [store.port]
    dist.broadcast_object_list(ports, src=0)
    if rank != 0:
        store = dist.TCPStore(
            "127.0.0.1", ports[0], is_master=False, wait_for_workers=False, timeout=limit
        )
    try:
        yield store
    finally:
        leaving = dist.PrefixStore("labkit leaving", store)
        if leaving.add("left", 1) == world_size:
            leaving.set("all left", "")
        if rank == 0:
            leaving.wait(["all left"], limit * 3)


# -- 01-1 ---------------------------------------------------------------------------------------


def _environment(rank: int, world_size: int) -> dict[str, str]:
    """Return what torchrun would have set on two hosts, so that LOCAL_RANK is not RANK."""
    return {
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": str(2 * world_size),
        "RANK": str(world_size + rank),
        "LOCAL_WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank),
    }


def trial_arguments(answer: Callable[[dict[str, str]], dict[str, Any]], here: Here) -> list[Any]:
    """Return the arguments, in a list of fixed order, and the names of others."""
    given = answer(_environment(here.rank, here.world_size))
    if not isinstance(given, dict):
        raise TypeError(f"join_arguments returned {type(given).__name__}, not a dict")
    found = [given.get(name) for name in ("init_method", "rank", "world_size")]
    return [*found, *sorted(set(given) - {"init_method", "rank", "world_size"})]


def expected_arguments(world_size: int) -> list[list[Any]]:
    """Return address, rank and world size of each rank of the second host."""
    return [
        ["tcp://10.0.0.7:23456", world_size + rank, 2 * world_size] for rank in range(world_size)
    ]


def _parts(yours: Sequence[Any], place: int) -> list[Any]:
    return [v[place] for v in yours if isinstance(v, list) and len(v) > place]


# -- 01-2 ---------------------------------------------------------------------------------------


class _Counted:
    """A store that counts the calls that are made on it."""

    def __init__(self, store: dist.Store) -> None:
        self.store = store
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.store, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return attribute(*args, **kwargs)

        return call


def trial_ticket(answer: Callable[[Any], int], here: Here) -> list[Any]:
    """Take two tickets, the last rank first, then the first rank first; count calls."""
    rank, world_size = here.rank, here.world_size
    with _shared_store(rank, world_size) as store:
        turns = dist.PrefixStore("labkit turns", store)
        counted = _Counted(store)
        tickets = []
        for place in (world_size - 1 - rank, world_size + rank):
            if place:
                turns.wait([str(place)])
            try:
                tickets.append(answer(counted))
            finally:
                turns.set(str(place + 1), "")
        return [*tickets, counted.calls]


def expected_ticket(world_size: int) -> list[list[int]]:
    """Count on, in the order in which the ranks came; two trips to the store."""
    return [[world_size - 1 - rank, world_size + rank, 2] for rank in range(world_size)]


# -- 01-3 ---------------------------------------------------------------------------------------


def trial_meet(answer: Callable[[dist.Store, str, int], None], here: Here) -> list[int]:
    """Meet twice, one rank being late each time; say how many had come when this one went on."""
    world_size = here.world_size
    with _shared_store(here.rank, world_size) as store:
        arrivals = dist.PrefixStore("labkit arrivals", store)
        seen = []
        for name, late in (("first", 0), ("second", world_size - 1)):
            if here.rank == late:
                time.sleep(LATE_SECONDS)
            arrivals.add(name, 1)
            answer(store, name, world_size)
            seen.append(arrivals.add(name, 0))
        return seen


def expected_meet(world_size: int) -> list[list[int]]:
    """Everybody had come, both times."""
    return [[world_size, world_size]] * world_size


# -- 01-4 ---------------------------------------------------------------------------------------

#: Device, hosts and interconnect, and the backend that PyTorch's documentation recommends.
CASES = (
    ("cuda", 1, "none", "nccl"),
    ("cuda", 4, "ethernet", "nccl"),
    ("cuda", 4, "infiniband", "nccl"),
    ("cuda", 4, "infiniband with ip", "nccl"),
    ("cpu", 1, "none", "gloo"),
    ("cpu", 4, "ethernet", "gloo"),
    ("cpu", 4, "infiniband with ip", "gloo"),
    ("cpu", 4, "infiniband", "mpi"),
)


def trial_choose(answer: Callable[[str, int, str], str], here: Here) -> list[str]:
    """Ask for the backend in each case."""
    return [answer(device, hosts, link) for device, hosts, link, _ in CASES]


def expected_choose() -> list[str]:
    """Return the documentation's choice in each case."""
    return [backend for *_, backend in CASES]


def _chose(yours: Any, backend: str, **where: str) -> bool:
    """Tell whether an answer chose a backend in some case with this device and interconnect."""
    if not isinstance(yours, list) or len(yours) != len(CASES):
        return False
    return any(
        chosen == backend
        and case[0] == where["device"]
        and case[2] in where.get("link", case[2]).split(" | ")
        for chosen, case in zip(yours, CASES, strict=True)
    )


# -- 01-5 ---------------------------------------------------------------------------------------


def grid_shape(world_size: int) -> tuple[int, int]:
    """Return rows and columns of the squarest grid with no more rows than columns."""
    rows = next(r for r in range(int(world_size**0.5), 0, -1) if world_size % r == 0)
    return rows, world_size // rows


def trial_grid(
    answer: Callable[[torch.Tensor, int, int], Sequence[Any]], here: Here
) -> list[float]:
    """Sum powers of two over row and column: the sum tells who was in it."""
    rows, columns = grid_shape(here.world_size)
    row_sum, column_sum = answer(torch.tensor([2.0**here.rank]), rows, columns)
    return [float(row_sum), float(column_sum)]


def expected_grid(world_size: int) -> list[list[float]]:
    """Add up in one process."""
    rows, columns = grid_shape(world_size)
    held = torch.tensor([2.0**rank for rank in range(world_size)]).reshape(rows, columns)
    return [
        [held[rank // columns].sum().item(), held[:, rank % columns].sum().item()]
        for rank in range(world_size)
    ]


def _everywhere(yours: Sequence[Any], test: Callable[[list[float], int], bool]) -> bool:
    return not failed(yours) and all(
        isinstance(v, list) and len(v) == 2 and test(v, r) for r, v in enumerate(yours)
    )


# -- 01-6 ---------------------------------------------------------------------------------------

#: For 01-6, in seconds: when a late key comes and how long to wait for it at most; how long to
#: wait for one that comes too late, and when that one comes.
SOON, PATIENT, IMPATIENT, TOO_LATE = 0.2, 10.0, 0.3, 2.0


def trial_wait(answer: Callable[[dist.Store, str, float, str], str], here: Here) -> list[Any]:
    """Ask for a key that is there, one that comes soon, and one that comes too late; say whether
    the store's timeout is what it was. Every rank has a store of its own."""
    limit = timedelta(seconds=STORE_SECONDS)
    store: Any = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=limit
    )
    store.set("colour", "blue")
    found = [answer(store, "colour", PATIENT, "grey")]
    for key, comes, seconds in (("size", SOON, PATIENT), ("shape", TOO_LATE, IMPATIENT)):
        other = store.clone()  # a connection of its own: the answer's is busy while it waits
        timer = threading.Timer(comes, other.set, (key, f"the {key}"))
        timer.start()
        try:
            found.append(answer(store, key, seconds, "nothing"))
        finally:
            timer.cancel()
            timer.join()
    return [*found, store.timeout == limit]


def expected_wait(world_size: int) -> list[list[Any]]:
    """Return the two values that come in time, and the default."""
    return [["blue", "the size", "nothing", True]] * world_size


# -- 01-7 ---------------------------------------------------------------------------------------


def every_second(world_size: int) -> list[list[int]]:
    """Return the even and the odd ranks, or both of two."""
    if world_size <= 2:
        return [list(range(world_size))]
    return [list(range(first, world_size, 2)) for first in (0, 1)]


def trial_last(answer: Callable[[torch.Tensor, dist.ProcessGroup], None], here: Here) -> float:
    """Take what the last of the even or of the odd ranks holds."""
    mine: Any = None
    for ranks in every_second(here.world_size):
        group = dist.new_group(ranks)
        if here.rank in ranks:
            mine = group
    x = torch.tensor([_held(here.rank)], device=here.device)
    answer(x, mine)
    return x.item()


def _held(rank: int) -> float:
    return 10.0 * (rank + 1)


def expected_last(world_size: int) -> list[float]:
    """Look it up."""
    lasts = {rank: ranks[-1] for ranks in every_second(world_size) for rank in ranks}
    return [_held(lasts[rank]) for rank in range(world_size)]


def _says(yours: Sequence[Any], *words: str) -> bool:
    return any(isinstance(v, Failed) and any(word in v.message for word in words) for v in yours)


# -- 01-8 ---------------------------------------------------------------------------------------

#: What is asked of 01-8: a backend as init_process_group takes it, and a kind of device.
ASKED = (
    ("gloo", "cpu"),
    ("gloo", "cuda"),
    ("nccl", "cuda"),
    ("nccl", "cpu"),
    ("cpu:gloo,cuda:nccl", "cpu"),
    ("cpu:gloo,cuda:nccl", "cuda"),
    ("cuda:nccl", "cpu"),
)


def trial_backend(answer: Callable[[str, str], str | None], here: Here) -> list[str | None]:
    """Ask for the backend of each device."""
    return [answer(text, device) for text, device in ASKED]


def expected_backend() -> list[str | None]:
    """Ask PyTorch's own reader of such texts."""
    found = [BackendConfig(text).get_device_backend_map().get(device) for text, device in ASKED]
    return [None if backend is None else str(backend) for backend in found]


def _served(yours: Any, text: str, device: str, backend: str | None) -> bool:
    """Tell whether an answer gave ``backend`` in one case."""
    return isinstance(yours, list) and yours[ASKED.index((text, device))] == backend


EXERCISES = (
    Exercise(
        id="01-1",
        title="Read what torchrun sets",
        answer="join_arguments",
        trial=trial_arguments,
        expected=expected_arguments,
        mistakes=(
            Mistake(
                "You read LOCAL_RANK, which counts within one machine; RANK counts all of them.",
                when=lambda yours, expected, n: (
                    [str(part) for part in _parts(yours, 1)] == [str(r) for r in range(n)]
                ),
            ),
            Mistake(
                "The world size is that of one machine: WORLD_SIZE counts the ranks of all.",
                when=lambda yours, expected, n: bool(
                    {str(part) for part in _parts(yours, 2)} & {str(n)}
                ),
            ),
            Mistake(
                "Environment variables are text. rank and world_size are numbers: wrap them in "
                "int(…).",
                when=lambda yours, expected, n: any(
                    isinstance(part, str) for part in _parts(yours, 1) + _parts(yours, 2)
                ),
            ),
            Mistake(
                "The port is missing in init_method: it is tcp://, the address, a colon, the port.",
                when=lambda yours, expected, n: any(
                    "23456" not in str(part) and "tcp://" in str(part) for part in _parts(yours, 0)
                ),
            ),
            Mistake(
                "init_method has to be an address that begins with tcp://.",
                when=lambda yours, expected, n: any(
                    not str(part).startswith("tcp://") for part in _parts(yours, 0)
                ),
            ),
        ),
        hints=(
            "Four variables make three arguments: address and port go into one URL.",
            "What you read from the environment is text; rank and world_size have to be numbers.",
            'Return {"init_method": f"tcp://{address}:{port}", "rank": int(…), '
            '"world_size": int(…)}.',
        ),
    ),
    Exercise(
        id="01-2",
        title="Draw a ticket",
        answer="take_ticket",
        trial=trial_ticket,
        expected=expected_ticket,
        forbids=("get_rank", "all_reduce", "all_gather", "all_gather_object", "barrier"),
        mistakes=(
            Mistake(
                "You set what you had read: between the two calls another rank can read the same "
                "number. add does both at once.",
                when=lambda yours, expected, n: any(
                    isinstance(v, list) and v[-1] > 2 for v in yours
                ),
            ),
            Mistake(
                "You wait for a key that nobody has set yet. add begins at 0 by itself.",
                when=lambda yours, expected, n: any(
                    isinstance(v, Failed) and v.name == "DistStoreError" for v in yours
                ),
            ),
            Mistake(
                "Your tickets begin at 1: add returns the number after the addition.",
                when=lambda yours, expected, n: (
                    not failed(yours)
                    and [v[:2] for v in yours] == [[e[0] + 1, e[1] + 1] for e in expected]
                ),
            ),
            Mistake(
                "Every rank gets its own rank, whenever it comes: the tickets have to be dealt by "
                "the store.",
                when=lambda yours, expected, n: (
                    not failed(yours) and all(v[0] == r for r, v in enumerate(yours)) and n > 1
                ),
            ),
            Mistake(
                "Ranks get equal tickets: all of them have to count with one key.",
                when=lambda yours, expected, n: (
                    not failed(yours) and len({v[0] for v in yours}) < n
                ),
            ),
        ),
        hints=(
            "One call of the store reads a counter, adds to it and writes it, all in one go.",
            "store.add(key, 1) returns the number after the addition. What was it before?",
            'One line is enough: return store.add("tickets", 1) - 1.',
        ),
    ),
    Exercise(
        id="01-3",
        title="Build a barrier",
        answer="meet",
        trial=trial_meet,
        expected=expected_meet,
        forbids=("barrier", "monitored_barrier", "all_reduce", "all_gather", "all_gather_object"),
        mistakes=(
            Mistake(
                "Nobody opens the door: a rank waited for a key until the store's timeout. The "
                "rank whose add returns world_size has to set it.",
                when=lambda yours, expected, n: any(
                    isinstance(v, Failed) and v.name == "DistStoreError" for v in yours
                ),
            ),
            Mistake(
                "The first meeting works, the second finds the door of the first one open: put "
                "the name of the meeting into the key.",
                when=lambda yours, expected, n: (
                    not failed(yours)
                    and all(v[0] == n for v in yours)
                    and any(v[1] != n for v in yours)
                ),
            ),
            Mistake(
                "Some ranks go on before everybody has come: a key to wait for must not be there "
                "before the last one sets it.",
                when=lambda yours, expected, n: not failed(yours) and any(v[0] != n for v in yours),
            ),
        ),
        hints=(
            "Count who comes, with add. The last one knows that it is the last.",
            "Two keys: a counter, and a door that only the last one sets. Everybody waits for the "
            "door.",
            'if store.add(name, 1) == world_size: store.set(name + " open", ""), and then, on '
            'every rank, store.wait([name + " open"]).',
        ),
    ),
    Exercise(
        id="01-4",
        title="Choose a backend",
        answer="choose_backend",
        trial=trial_choose,
        expected=expected_choose,
        where="notebook",
        mistakes=(
            Mistake(
                "NCCL moves tensors between NVIDIA GPUs only; on CPUs it cannot be used.",
                when=lambda yours, expected, n: _chose(yours, "nccl", device="cpu"),
            ),
            Mistake(
                "On GPUs NCCL is the first choice over Ethernet too; gloo is what you fall back "
                "to when NCCL gives trouble.",
                when=lambda yours, expected, n: _chose(yours, "gloo", device="cuda"),
            ),
            Mistake(
                "On GPUs NCCL speaks InfiniBand by itself: no MPI is needed.",
                when=lambda yours, expected, n: _chose(yours, "mpi", device="cuda"),
            ),
            Mistake(
                "Where InfiniBand carries IP, gloo can use it: MPI is for InfiniBand without IP.",
                when=lambda yours, expected, n: _chose(
                    yours, "mpi", device="cpu", link="none | ethernet | infiniband with ip"
                ),
            ),
            Mistake(
                "Gloo talks over IP only: on CPU hosts whose InfiniBand has none, MPI is left.",
                when=lambda yours, expected, n: _chose(
                    yours, "gloo", device="cpu", link="infiniband"
                ),
            ),
        ),
        hints=(
            "Ask for the device first: on one of the two, nothing else matters.",
            "On CPUs it is gloo, but for one kind of network.",
            'cuda: "nccl". cpu: "mpi" if interconnect == "infiniband", else "gloo".',
        ),
    ),
    Exercise(
        id="01-5",
        title="Sum over rows and columns",
        answer="row_and_column_sums",
        trial=trial_grid,
        expected=expected_grid,
        mistakes=(
            Mistake(
                "You sum over the whole world: hand the sub-group to all_reduce with group=.",
                when=lambda yours, expected, n: _everywhere(
                    yours, lambda v, r: v[0] == 2.0**n - 1 and v != expected[r]
                ),
            ),
            Mistake(
                "The second sum began with the first one's result: all_reduce overwrites its "
                "tensor, so sum a clone of x each time.",
                when=lambda yours, expected, n: (
                    _everywhere(yours, lambda v, r: v[0] == expected[r][0] and v[1] == 2.0**n - 1)
                    and any(e[1] != 2.0**n - 1 for e in expected)
                ),
            ),
            Mistake(
                "Row and column have changed places: the ranks of a row are neighbours.",
                when=lambda yours, expected, n: (
                    _everywhere(yours, lambda v, r: v == expected[r][::-1])
                    and any(e[0] != e[1] for e in expected)
                ),
            ),
            Mistake(
                "The second sum is that of the row again: the ranks of a column are `columns` "
                "apart.",
                when=lambda yours, expected, n: _everywhere(
                    yours, lambda v, r: v == [expected[r][0]] * 2
                ),
            ),
            Mistake(
                "Some ranks kept their own number: in a group that it is not in, a rank gets "
                "nothing. Keep the sum of the group that it is a member of.",
                when=lambda yours, expected, n: (
                    not failed(yours) and any(2.0**r in v for r, v in enumerate(yours))
                ),
            ),
        ),
        hints=(
            "Write the ranks into a grid: torch.arange(rows * columns).reshape(rows, columns). Its "
            "rows are the row groups; the rows of its transpose are the column groups.",
            "Every rank calls new_group for every line, also for those that it is not in, and "
            "sums only in its own.",
            "for line in grid.tolist(): group = dist.new_group(line); if rank in line: clone x and "
            "all_reduce the clone with group=group. Then the same for grid.T.",
        ),
    ),
    Exercise(
        id="01-6",
        title="Wait a while",
        answer="get_or",
        trial=trial_wait,
        expected=expected_wait,
        mistakes=(
            Mistake(
                "The value comes as bytes: decode() makes text of it.",
                when=lambda yours, expected, n: any(
                    isinstance(part, bytes) for place in range(3) for part in _parts(yours, place)
                ),
            ),
            Mistake(
                "The key came after a moment, and you had not waited for it: check looks once, "
                "wait waits.",
                when=lambda yours, expected, n: "nothing" in _parts(yours, 1),
            ),
            Mistake(
                "You waited longer than `seconds`, until the key came or the store's own time was "
                "up: hand the time to wait, as a timedelta.",
                when=lambda yours, expected, n: "the shape" in _parts(yours, 2),
            ),
            Mistake(
                "The store has another timeout now, for everybody who uses it after you: hand the "
                "time to wait instead of calling set_timeout.",
                when=lambda yours, expected, n: False in _parts(yours, 3),
            ),
            Mistake(
                "It ends with the store's error when nobody sets the key: catch it and return "
                "default.",
                when=lambda yours, expected, n: failed(yours, "DistStoreError"),
            ),
            Mistake(
                "wait takes a list of keys and a timedelta: "
                "store.wait([key], timedelta(seconds=seconds)).",
                when=lambda yours, expected, n: failed(yours, "TypeError"),
            ),
        ),
        hints=(
            "Wait for the key first, with a limit, and read it afterwards.",
            "store.wait takes a list of keys and a timedelta, and raises dist.DistStoreError when "
            "the time is up.",
            "try: store.wait([key], timedelta(seconds=seconds)); except dist.DistStoreError: "
            "return default; and then return store.get(key).decode().",
        ),
    ),
    Exercise(
        id="01-7",
        title="Take it from the last one",
        answer="from_last",
        trial=trial_last,
        expected=expected_last,
        goals=(Goal("collectives", exactly=lambda n: 1),),
        mistakes=(
            Mistake(
                "src= is a rank of the world. A place in the group goes into group_src=.",
                when=lambda yours, expected, n: _says(yours, "Global rank"),
            ),
            Mistake(
                "There is no such place in the group: places count from 0, and the last one is "
                "dist.get_world_size(group) - 1.",
                when=lambda yours, expected, n: _says(yours, "invalid root rank"),
            ),
            Mistake(
                "That is the first one's: place 0. The last place is dist.get_world_size(group) "
                "- 1.",
                when=lambda yours, expected, n: (
                    list(yours)
                    == [_held(line[0]) for r in range(n) for line in every_second(n) if r in line]
                ),
            ),
            Mistake(
                "Everybody has the same: you talked to the whole world. Hand over group=.",
                when=lambda yours, expected, n: (
                    not failed(yours) and len(set(yours)) == 1 and len(set(expected)) > 1
                ),
            ),
            Mistake(
                "x is as it was: broadcast into x itself, not into a copy.",
                when=lambda yours, expected, n: list(yours) == [_held(r) for r in range(n)],
            ),
        ),
        hints=(
            "One rank holds it and all of its group want it: which of the nine is that?",
            "broadcast takes the place of the sender in the group as group_src=, and the group "
            "as group=.",
            "last = dist.get_world_size(group) - 1; dist.broadcast(x, group_src=last, group=group)",
        ),
    ),
    Exercise(
        id="01-8",
        title="Read a backend's text",
        answer="backend_for",
        trial=trial_backend,
        expected=expected_backend,
        where="notebook",
        mistakes=(
            Mistake(
                "A plain name has no colon to cut at: it stands for every kind of device that the "
                "backend serves.",
                when=lambda yours, expected, n: (
                    isinstance(yours, Failed) and yours.name in ("ValueError", "IndexError")
                ),
            ),
            Mistake(
                "There need not be a pair for the device: then the answer is None, as from "
                "dict.get.",
                when=lambda yours, expected, n: (
                    isinstance(yours, Failed) and yours.name == "KeyError"
                ),
            ),
            Mistake(
                "NCCL serves GPUs only: a plain nccl leaves CPU tensors without a backend.",
                when=lambda yours, expected, n: _served(yours, "nccl", "cpu", "nccl"),
            ),
            Mistake(
                "gloo serves GPU tensors too, if slowly: a plain gloo stands for both.",
                when=lambda yours, expected, n: _served(yours, "gloo", "cuda", None),
            ),
            Mistake(
                "You take one pair for every device: look for the pair that begins with it.",
                when=lambda yours, expected, n: (
                    _served(yours, "cpu:gloo,cuda:nccl", "cuda", "gloo")
                    or _served(yours, "cpu:gloo,cuda:nccl", "cpu", "nccl")
                ),
            ),
        ),
        hints=(
            "There are two kinds of text: with a colon, and without one.",
            'Cut pairs apart with split(","), and each pair with split(":"). Without a colon, '
            "ask whether the backend serves the device.",
            'With a colon: dict(pair.split(":") for pair in text.split(",")).get(device). Without: '
            'text, or None for ("nccl", "cpu").',
        ),
    ),
)
