"""The end of a cell waits for what the rank has given to its device."""

from __future__ import annotations

import ast
import asyncio
import ctypes
import logging
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import distributed_c10d

from labkit.rank import ipython_internals, memory
from labkit.rank.observe import device, device_wait, flight_recorder, p2p_record
from labkit.rank.observe.p2p_record import Message
from labkit.rank.torch_internals import frames as torch_frames
from labkit.rank.torch_internals import recorder
from labkit.rank.torch_internals.recorder import Issued


class Queue:
    """A device that has done its work after so many looks."""

    def __init__(self, looks: int = 0, *, used: bool = True, error: Exception | None = None):
        self.looks, self.used, self.error = looks, used, error
        self.marks = 0

    def is_used(self) -> bool:
        return self.used

    def mark(self) -> None:
        self.marks += 1

    def is_done(self) -> bool:
        self.looks -= 1
        if self.looks <= 0 and self.error is not None:
            raise self.error
        return self.looks <= 0

    def collectives(self) -> list[Any]:
        return [(("0", (0, 1)), 3)]

    def messages(self) -> list[Message]:
        return [Message("0", "send", 1, 0, 1, 0)]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Queue], Queue]:
    def put(queue: Queue) -> Queue:
        monkeypatch.setattr(device, "queue", queue)
        return queue

    return put


def test_the_end_waits_until_the_device_has_done_all(use: Any) -> None:
    queue = use(Queue(looks=5))
    device.finish()
    assert (queue.looks, queue.marks) == (0, 1)


def test_an_error_of_the_device_is_raised(use: Any) -> None:
    use(Queue(looks=3, error=RuntimeError("an illegal memory access")))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        device.finish()


def test_a_rank_without_a_device_waits_for_nothing(use: Any) -> None:
    queue = use(Queue(looks=10**9, used=False))
    device.finish()
    assert (queue.marks, device.pending(), device.pending_messages()) == (0, (), ())


def test_what_is_pending_is_what_the_device_has_not_finished(use: Any) -> None:
    use(Queue())
    assert device.uses_device()
    assert device.pending() == ((("0", (0, 1)), 3),)
    assert device.pending_messages() == (Message("0", "send", 1, 0, 1, 0),)


def test_a_cpu_has_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "device", torch.device("cpu"))
    assert not device.Cuda().is_used()
    began = time.thread_time()
    for _ in range(10_000):
        device.finish()
    assert time.thread_time() - began < 0.1  # 10 µs each would be too long


def test_another_thread_sees_where_a_rank_waits_for_its_device(use: Any) -> None:
    use(Queue(looks=10**9))
    ident, seen = threading.get_ident(), []

    def look() -> None:
        while True:
            frame = sys._current_frames()[ident]
            while frame is not None:
                if frame.f_code is device.WAIT:
                    seen.append(frame.f_code)
                    device.queue.looks = 1  # type: ignore[attr-defined]
                    return
                frame = frame.f_back  # type: ignore[assignment]

    thread = threading.Thread(target=look)
    thread.start()
    device.finish()
    thread.join()
    assert seen == [device.WAIT]


# -- CUDA's event -------------------------------------------------------------------------------


def test_cuda_is_done_when_the_stream_is_and_nccl_has_nothing_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    class Event:
        def record(self, stream: object) -> None:
            steps.append(f"record on {stream}")

        def query(self) -> bool:
            steps.append("query")
            return steps.count("query") > 1

    left = [[1], []]
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda of: f"the stream of {of}")
    monkeypatch.setattr(memory, "device", torch.device("cuda:1"))
    monkeypatch.setattr(flight_recorder, "list_queued", lambda: left.pop(0))
    cuda = device.Cuda()
    cuda.mark()
    assert [cuda.is_done() for _ in range(3)] == [False, False, True]
    assert steps == ["record on the stream of cuda:1", "query", "query"]
    assert left == []


def test_what_nccls_watchdog_has_found_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SimpleNamespace(get_error=lambda: SimpleNamespace(name="TIMEOUT"))
    monkeypatch.setattr(device.groups, "groups", lambda: [SimpleNamespace(group_name="5")])
    monkeypatch.setattr(device.groups, "nccl", lambda group: backend)
    with pytest.raises(RuntimeError, match="NCCL has aborted group 5: TIMEOUT"):
        device.Cuda().is_done()


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ((0, 0, 0), "cuda:3: this process sleeps where it waits for it"),
        ((0, 0, 708), "cuda:3: CUDA's driver refuses to sleep while it waits (708)"),
        (None, "cuda:3: no way to sleep while it waits (no driver)"),
    ],
)
def test_blocking_sync_is_asked_of_the_driver(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    codes: tuple[int, ...] | None,
    said: str,
) -> None:
    asked: list[tuple[Any, ...]] = []

    class Driver:
        def __getattr__(self, name: str) -> Callable[..., int]:
            def call(*args: Any) -> int:
                asked.append((name, *(getattr(a, "value", a) for a in args)))
                assert codes is not None
                return codes[len(asked) - 1]

            return call

    def load(name: str) -> Driver:
        if codes is None:
            raise OSError("no driver")
        return Driver()

    monkeypatch.setattr(ctypes, "CDLL", load)
    with caplog.at_level(logging.DEBUG, "labkit"):
        device.use_blocking_sync(torch.device("cuda:3"))
    assert caplog.messages == [said]
    if codes == (0, 0, 0):
        assert [call[0] for call in asked] == [
            "cuInit",
            "cuDeviceGet",
            "cuDevicePrimaryCtxSetFlags_v2",
        ]
        assert (asked[1][2], asked[2][2]) == (3, 4)


# -- NCCL's part of the recorder ----------------------------------------------------------------


def entry(name: str, *, done: bool, group: str = "0", message: bool = True) -> Issued:
    named = f"nccl:{name}"
    return Issued(group, 1, 1, named, 10, done, is_message=message, backend="nccl")


SEND, RECV, BATCH = "send 0->1", "recv 0<-1", "coalesced"


@pytest.mark.parametrize(
    ("entries", "done"),
    {
        "a batch that is done": (
            [entry(SEND, done=False), entry(RECV, done=False), entry(BATCH, done=True)],
            [True, True],
        ),
        "a batch that is not": (
            [entry(SEND, done=False), entry(RECV, done=False), entry(BATCH, done=False)],
            [False, False],
        ),
        "one after the other": (
            [
                entry(SEND, done=False),
                entry(BATCH, done=True),
                entry(SEND, done=False),
                entry(BATCH, done=False),
            ],
            [True, False],
        ),
        "no batch": ([entry(SEND, done=True), entry(RECV, done=False)], [True, False]),
        "a batch of another group": (
            [entry(SEND, done=False), entry(BATCH, done=True, group="1")],
            [False],
        ),
        "a collective before it": (
            [
                entry("all_reduce", done=False, message=False),
                entry(SEND, done=False),
                entry(BATCH, done=True),
            ],
            [False, True],
        ),
    }.values(),
)
def test_messages_of_a_batch_are_done_when_it_is(entries: list[Issued], done: list[bool]) -> None:
    closed = recorder.close_batches(entries)
    assert [e.name for e in closed] == [e.name for e in entries if not e.name.endswith(BATCH)]
    assert [e.done for e in closed] == done


def told_by_nccl(name: str, *, retired: bool, age: float, state: str = "completed") -> Issued:
    created = time.time_ns() - int(age * 1e9)
    return recorder._issued(
        {
            "process_group": ("0", "default_pg"), "collective_seq_id": 3, "op_id": 4,
            "profiling_name": name, "time_created_ns": created, "retired": retired,
            "state": state, "input_sizes": [[1]], "output_sizes": [[1]],
            "input_dtypes": ["Float"], "output_dtypes": ["Float"], "is_p2p": False,
        }
    )  # fmt: skip


def test_what_nccl_has_not_begun_with_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on an H200: the recorder calls it completed for as long as the call spins."""
    spins = told_by_nccl("nccl:all_reduce", retired=False, age=3.0)
    assert (spins.done, spins.held) == (False, True)
    for other in (
        told_by_nccl("nccl:all_reduce", retired=True, age=3.0),
        told_by_nccl("nccl:all_reduce", retired=False, age=0.0),  # the watchdog looks now and then
        told_by_nccl("gloo:all_reduce", retired=False, age=3.0),
    ):
        assert (other.done, other.held) == (True, False)
    waits = told_by_nccl("nccl:all_reduce", retired=False, age=3.0, state="scheduled")
    assert (waits.done, waits.held) == (False, False)
    monkeypatch.setattr(flight_recorder, "list_queued", lambda: [waits, spins])
    assert (flight_recorder.held(), flight_recorder.progress()) == (4, (2, 4))
    monkeypatch.setattr(flight_recorder, "list_queued", lambda: [waits])
    assert (flight_recorder.held(), flight_recorder.progress()) == (0, (1, 0))


def test_a_batch_that_nccl_has_not_begun_with_holds_its_messages() -> None:
    batch = told_by_nccl("nccl:coalesced", retired=False, age=3.0)
    sends = entry(SEND, done=False)
    assert [(e.done, e.held) for e in recorder.close_batches([sends, batch])] == [(False, True)]


def test_nccls_barrier_has_its_own_name() -> None:
    barrier = told_by_nccl("nccl:all_reduce_barrier", retired=True, age=1.0)
    assert (barrier.name, barrier.shapes) == ("nccl:barrier", ())


def test_a_message_whose_call_holds_counts_as_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two first calls that wait for each other would look like two that nobody answers."""

    class Group:
        group_name = "0"

    group = Group()
    monkeypatch.setattr(p2p_record, "posted", {group: Counter({("send", 1, 0): 2})})
    counts = []

    def spin(*call: object) -> None:
        for number in (0, 5):
            monkeypatch.setattr(flight_recorder, "held", lambda number=number: number)
            counts.append(flight_recorder._posted(group)["send", 1, 0])  # type: ignore[arg-type]

    monkeypatch.setattr(p2p_record.torch_frames, "skip", lambda frame: called_from(frame, spin))
    monkeypatch.setattr(p2p_record, "_check_peer", lambda group, peer: None)
    monkeypatch.setattr(p2p_record, "_note", lambda *about: None)
    monkeypatch.setitem(p2p_record.original, "send", spin)
    p2p_record.send(group, [], 1, 0)  # type: ignore[arg-type]
    assert counts == [2, 3]


def called_from(frame: Any, function: Any) -> Any:
    """Return the frame that has called a function, which stands for C++; other frames as is."""
    top = frame
    while frame is not None:
        if frame.f_code is function.__code__:
            return frame.f_back
        frame = frame.f_back
    return top


class Frame:
    """A frame of some file of torch's or ours."""

    def __init__(self, file: str, name: str = "f") -> None:
        self.f_code = SimpleNamespace(co_filename=file, co_name=name)
        self.f_back: Frame | None = None


def test_a_thread_is_held_where_nccl_or_cuda_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    connects = (
        Frame(p2p_record.__file__),
        Frame(distributed_c10d.__file__, "send"),
        Frame(distributed_c10d.__file__, "irecv"),
    )
    events = (
        Frame(torch_frames.path("cuda/streams.py"), "synchronize"),
        Frame(torch_frames.path("nn/parallel/distributed.py"), "_pre_forward"),
    )
    others = Frame(__file__), Frame(torch_frames.path("cuda/streams.py"), "query")

    def held(number: int, *, pending: bool) -> list[bool]:
        queue = SimpleNamespace(
            is_used=lambda: True, held=lambda: number,
            collectives=lambda: [(("0", (0, 1)), 3)] if pending else [], messages=list,
        )  # fmt: skip
        monkeypatch.setattr(device, "queue", queue)
        frames: tuple[Any, ...] = (*connects, *events, *others)
        return [device_wait.holds(frame) for frame in frames]

    assert held(0, pending=False) == [False] * 7
    assert held(4, pending=True) == [True] * 5 + [False] * 2
    assert held(0, pending=True) == [False] * 3 + [True] * 2 + [False] * 2
    passes_on = Frame(torch_frames._PASSING[0])
    passes_on.f_back = connects[0]
    assert torch_frames.skip(passes_on) is connects[0]  # type: ignore[arg-type, comparison-overlap]
    monkeypatch.setattr(device.queue, "is_used", lambda: False)
    assert not device_wait.holds(connects[0])  # type: ignore[arg-type]


def test_ends_of_a_message_are_read_from_its_name() -> None:
    assert recorder.read_message(entry(SEND, done=False)) == ("send", 0, 1)
    assert recorder.read_message(entry("recv 12<-3", done=False)) == ("recv", 12, 3)
    assert recorder.read_message(entry("all_reduce", done=False)) is None


def test_messages_that_nccl_has_not_finished_are_numbered_as_they_were_posted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Group:
        group_name = "0"

    group = Group()
    monkeypatch.setattr(flight_recorder.torch_groups, "members", lambda: {group: {0: 0, 1: 1}})
    monkeypatch.setattr(
        p2p_record, "posted", {group: {("send", 1, -1): 5, ("recv", 1, -1): 2, ("send", 1, 0): 9}}
    )
    queued = [entry(name, done=False) for name in (SEND, RECV, SEND)]
    monkeypatch.setattr(flight_recorder, "list_queued", lambda: queued)
    assert flight_recorder.queued_messages() == [
        Message("0", "send", 1, -1, 4, 0),
        Message("0", "recv", 1, -1, 2, 0),
        Message("0", "send", 1, -1, 5, 0),
    ]


def test_nccl_is_asked_for_its_own_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on an H200 with torch 2.11: the other one knows nothing of what NCCL was given."""

    def dump(name: str) -> Callable[..., bytes]:
        told = {
            "process_group": ("0", "default_pg"), "collective_seq_id": 3, "op_id": 4,
            "profiling_name": f"{name}:all_reduce", "time_created_ns": 10, "retired": False,
            "state": "scheduled", "input_sizes": [[3]], "output_sizes": [[3]],
            "input_dtypes": ["Float"], "output_dtypes": ["Float"], "is_p2p": False,
        }  # fmt: skip
        return lambda includeStackTraces: pickle.dumps({"entries": [told]})

    known = SimpleNamespace(_dump_fr_trace=dump("gloo"), _dump_nccl_trace=dump("nccl"))
    monkeypatch.setattr(recorder._C, "_distributed_c10d", known)
    for backend in ("gloo", "nccl"):
        assert [e.name for e in recorder.read(backend)] == [f"{backend}:all_reduce"]
    del known._dump_nccl_trace  # a torch that was made without NCCL
    assert recorder.read("nccl") == []


def test_only_what_nccl_has_not_finished_in_the_groups_of_today_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        entry("all_reduce", done=False, message=False),
        entry("all_reduce", done=True, message=False),
        entry("all_reduce", done=False, message=False, group="of yesterday"),
        entry("all_reduce", done=False, message=False)._replace(created=1),
        entry(SEND, done=False),
    ]
    monkeypatch.setattr(flight_recorder.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(flight_recorder, "_backends", lambda: ["gloo", "nccl"])
    monkeypatch.setattr(flight_recorder, "_births", lambda: {"0": 5})
    monkeypatch.setattr(recorder, "read", lambda backend: found)
    monkeypatch.setattr(flight_recorder, "keys", lambda: {"0": ("0", (0, 1))})
    assert flight_recorder.list_queued() == [found[0], found[4]]
    assert flight_recorder.queued_collectives() == [(("0", (0, 1)), 1)]
    monkeypatch.setattr(flight_recorder, "_backends", lambda: ["gloo"])
    assert flight_recorder.list_queued() == []


def test_two_backends_of_a_group_number_their_collectives_each_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Group:
        group_name = "0"

        def _get_backend(self, device: torch.device) -> Any:
            return SimpleNamespace(_get_sequence_number_for_group=lambda: 0)

    group = Group()
    of_gloo = Issued("0", 1, 9, "gloo:broadcast", 10, True)
    of_nccl = Issued("0", 1, 4, "nccl:all_reduce", 10, False, backend="nccl")
    on_record = {"gloo": [of_gloo], "nccl": [of_nccl]}
    members = {group: {0: 0, 1: 1}}
    monkeypatch.setattr(flight_recorder.torch_groups, "members", lambda: members)
    monkeypatch.setattr(flight_recorder.dist, "get_backend", lambda group: "cpu:gloo,cuda:nccl")
    monkeypatch.setattr(flight_recorder.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(recorder, "read", lambda backend: on_record[backend])
    monkeypatch.setattr(p2p_record, "posted", {group: Counter({("send", 1, 0): 2})})
    monkeypatch.setattr(p2p_record, "born", {group: 5})
    monkeypatch.setattr(p2p_record, "barriers", {})
    monkeypatch.setattr(p2p_record, "dropped", {})
    own, beside = ("0", (0, 1)), ("0 (gloo)", (0, 1))
    parts = flight_recorder.groups()
    assert {key: (part.last, len(part.posted)) for key, part in parts.items()} == {
        own: (1, 1),
        beside: (1, 0),
    }
    assert [parts[key].entries[1].name for key in (own, beside)] == ["all_reduce", "broadcast"]
    assert flight_recorder.pending() == ((own, 1),)
    assert flight_recorder.pending(1, "0") == ((own, 1),)
    assert flight_recorder.keys() == {"0": own, "0 (gloo)": beside}
    on_record["nccl"] = []
    assert flight_recorder.groups()[own].last == 0


# -- the end of a cell --------------------------------------------------------------------------


class Shell:
    """The part of IPython's shell that runs the code of a cell."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.shown: list[BaseException | None] = []

    async def run_ast_nodes(self, nodes: list[ast.stmt], result: Any = None) -> bool:
        result.error_in_exec = self.error
        return self.error is not None

    def showtraceback(self, **named: object) -> None:
        self.shown.append(sys.exc_info()[1])


def run(shell: Shell, finish: Callable[[], None]) -> tuple[bool, BaseException | None]:
    ipython_internals.at_end_of_cells(shell, finish)
    result = SimpleNamespace(error_in_exec=None)
    raised = asyncio.run(shell.run_ast_nodes([], result=result))
    return raised, result.error_in_exec


def raising(error: BaseException) -> Callable[[], None]:
    def finish() -> None:
        raise error

    return finish


@pytest.mark.parametrize("error", [RuntimeError("of the device"), KeyboardInterrupt()])
def test_an_error_of_the_end_is_the_cells(error: BaseException) -> None:
    shell = Shell()
    assert run(shell, raising(error)) == (True, error)
    assert shell.shown == [error]


def test_an_error_of_the_cell_goes_first() -> None:
    own = ValueError("of the cell")
    shell = Shell(own)
    assert run(shell, raising(RuntimeError("of the device"))) == (True, own)
    assert shell.shown == []


def test_the_end_is_waited_for_after_an_error_and_not_after_an_interrupt() -> None:
    ends: list[str] = []
    run(Shell(), lambda: ends.append("well"))
    run(Shell(ValueError()), lambda: ends.append("error"))
    run(Shell(KeyboardInterrupt()), lambda: ends.append("interrupt"))
    assert ends == ["well", "error"]


def test_a_shell_that_hides_it_is_left_alone() -> None:
    shell = SimpleNamespace()
    ipython_internals.at_end_of_cells(shell, raising(RuntimeError()))
    assert not hasattr(shell, "run_ast_nodes")
