"""The profiler's events become kinds of work; the cases that a real run shows only by luck."""

from labkit.rank.observe import p2p_record
from labkit.rank.observe.p2p_record import Message
from labkit.rank.profile.classify import MONITORED, Material, Raw, read, sort
from labkit.rank.torch_internals.recorder import Issued
from labkit.wire.recording import Event

MAIN, GLOO, OTHER = 1, 2, 3
MS = 1_000_000


def entry(number, created, *, name="gloo:all_reduce", group="0", shape=(100,), operation=None):
    return Issued(
        group=group,
        number=number,
        operation=operation or number,
        name=name,
        created=created,
        done=True,
        shapes=[list(shape)],
        types=["Float"],
    )


def reduce(start, stop, thread=GLOO):
    return Raw("gloo:all_reduce", start, stop, thread)


def of_kind(events, kind):
    return [(e.start, e.stop) for e in events if e.kind == kind]


def mark(kind, start, stop, name="Net"):
    return Event(kind, name, start, stop)


def test_torchs_trace_becomes_kinds_of_work():
    names = [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", MAIN),
        ("Optimizer.zero_grad#SGD.zero_grad", MAIN),
        ("aten::add", MAIN),
        ("Optimizer.step#SGD.step", MAIN),
        ("Optimizer.step#SGD.step", OTHER),
    ]
    trace = [
        {"ph": "X", "cat": "user_annotation", "name": name, "tid": thread, "ts": i, "dur": 0.5}
        for i, (name, thread) in enumerate(names)
    ]
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": 9, "dur": 1}
    other = [{"ph": "i", "name": "Optimizer.step#SGD.step", "ts": 9, "tid": MAIN},
             {**trace[0], "cat": "gpu_user_annotation"}]  # fmt: skip
    trace += [{**kernel, "args": {"correlation": 3}}, *other]
    raws = read({"traceEvents": trace, "baseTimeNanoseconds": 10**18})
    assert raws[-1] == Raw("gemm", 10**18 + 9000, 10**18 + 10_000, 7, True, 3)
    assert len(raws) == 5, "operators and what is drawn twice are left out"
    marked = [mark("forward", 0, 1), mark("backward", 1, 2)]
    found = [(e.kind, e.name) for e in sort(Material(MAIN, raws[:-1], marked))]
    assert found == [
        ("forward", "Net"),
        ("backward", "Net"),
        ("data loading", "next batch"),
        ("optimizer", "SGD.zero_grad"),
        ("optimizer", "SGD.step"),
    ]


def test_a_collective_counts_from_its_call_and_has_its_bytes():
    material = Material(MAIN, [reduce(5 * MS, 9 * MS)], entries=[entry(7, 2 * MS)],
                        groups={"0": [0, 1]})  # fmt: skip
    (event,) = sort(material)
    assert (event.start, event.stop, event.bytes, event.group) == (2 * MS, 9 * MS, 400, (0, 1))
    assert event.key == ("collective", "0", (0, 1), 7)


def test_what_the_recorder_has_forgotten_is_counted_back():
    raws = [reduce(i * MS, i * MS + 1) for i in range(1, 6)]
    entries = [entry(40, 4 * MS - 5), entry(41, 5 * MS - 5)]
    events = sort(Material(MAIN, raws, entries=entries))
    assert [e.key[-1] for e in events] == [37, 38, 39, 40, 41]
    assert [e.bytes for e in events] == [None, None, None, 400, 400]


def test_groups_are_told_apart_by_their_threads():
    """Both groups are busy at once, but each has events that can only be its own."""
    raws = [
        reduce(1 * MS, 2 * MS, GLOO),
        reduce(3 * MS, 8 * MS, OTHER),
        reduce(4 * MS, 5 * MS, GLOO),
    ]
    entries = [
        entry(1, 1 * MS - 5, group="a"),
        entry(2, 2 * MS + 5, group="a"),  # taken up later than what was issued after it
        entry(1, 3 * MS - 5, group="b"),
    ]
    events = sort(Material(MAIN, raws, entries=entries, groups={"a": [0, 1], "b": [0, 2]}))
    assert [(e.group, e.key[-1], e.stop) for e in events] == [
        ((0, 1), 1, 2 * MS),
        ((0, 1), 2, 5 * MS),
        ((0, 2), 1, 8 * MS),
    ]


def test_a_backward_stands_still_after_its_last_node_while_it_communicates():
    raws = [
        Raw("autograd::engine::evaluate_function: MmBackward0", 1 * MS, 6 * MS, MAIN),
        reduce(4 * MS, 18 * MS),
    ]
    marked = [mark("backward", 0, 20 * MS)]
    events = sort(Material(MAIN, raws, marked, entries=[entry(1, 4 * MS)]))
    assert of_kind(events, "blocked") == [(6 * MS, 18 * MS)]


def test_a_collective_ends_when_its_waiter_goes_on():
    """The profiler hears of it later where the thread that ran it was put aside."""
    wait = (2 * MS, 6 * MS, "0", 9)
    issued = [entry(3, 2 * MS, operation=9)]
    events = sort(Material(MAIN, [reduce(2 * MS, 30 * MS)], waits=[wait], entries=issued))
    assert of_kind(events, "communication") == [(2 * MS, 6 * MS)]
    # or the waiter was, and goes on later
    events = sort(Material(MAIN, [reduce(2 * MS, 5 * MS)], waits=[wait], entries=issued))
    assert of_kind(events, "communication") == [(2 * MS, 6 * MS)]
    # it was done before anybody waited
    wait = (7 * MS, 8 * MS, "0", 9)
    events = sort(Material(MAIN, [reduce(2 * MS, 5 * MS)], waits=[wait], entries=issued))
    assert of_kind(events, "communication") == [(2 * MS, 5 * MS)]
    marked = [mark("backward", 0, 10 * MS)]
    issued, late = [entry(1, 2 * MS)], [reduce(2 * MS, 30 * MS)]
    events = sort(Material(MAIN, late, marked, entries=issued))
    assert of_kind(events, "communication") == [(2 * MS, 10 * MS)]
    # waited for after the backward, so not DDP's
    wait = (15 * MS, 16 * MS, "0", 1)
    events = sort(Material(MAIN, late, marked, [wait], issued))
    assert of_kind(events, "communication") == [(2 * MS, 16 * MS)]


def test_messages_are_matched_in_order_and_have_a_key_that_both_ends_know():
    groups = {"g": [4, 7]}

    def talk(event, start, message):
        raws = [Raw(event, start, 9, MAIN)]
        return sort(Material(MAIN, raws, messages=[(2, message)], groups=groups))[0]

    sent = talk("gloo:send", 5, Message("g", "send", 1, 5, 3, 0))
    got = talk("gloo:recv", 1, Message("g", "recv", 0, 5, 3, 1))
    assert (sent.name, got.name) == ("send to rank 7", "recv from rank 4")
    assert sent.key == got.key == ("message", "g", (4, 7), 0, 1, 5, 3)
    assert (sent.start, got.start) == (2, 1), "it counts from the call"
    anybody = talk("gloo:recvAnySource", 1, Message("g", "recv_any", -1, 5, 1, 1))
    assert (anybody.name, anybody.key) == ("recv", ())


def test_the_messages_of_a_monitored_barrier_are_its_own():
    raws = [Raw("gloo:send", 3, 4, MAIN), Raw("gloo:send", 12, 13, MAIN)]
    events = sort(
        Material(
            MAIN,
            raws,
            waits=[(2, 9, "", p2p_record.MONITORED)],
            messages=[(11, Message("g", "send", 1, 0, 1, 0))],
        )
    )
    found = [(e.name, e.start) for e in events if e.kind == "communication"]
    assert found == [("monitored_barrier", 2), ("send to rank 1", 11)]
    assert p2p_record.MONITORED == MONITORED


def test_on_a_gpu_kernels_are_the_work_and_the_communication():
    """As torch's documentation has it; test_gpu has the real thing."""
    compute, wire = 7, 20
    raws = [
        Raw("cudaLaunchKernel", 1 * MS, 1 * MS, MAIN, correlation=1),
        Raw("cudaLaunchKernel", 3 * MS, 3 * MS, OTHER, correlation=2),  # autograd's own thread
        Raw("cudaLaunchKernel", 3 * MS, 3 * MS, OTHER, correlation=3),
        Raw("gemm", 5 * MS, 8 * MS, compute, device=True, correlation=1),
        Raw("gemm", 8 * MS, 11 * MS, compute, device=True, correlation=2),
        Raw(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
            10 * MS,
            15 * MS,
            wire,
            device=True,
            correlation=3,
        ),
        Raw("nccl:all_reduce", 3 * MS, 3 * MS, MAIN),
    ]
    marked = [mark("forward", 0, 2 * MS), mark("backward", 2 * MS, 4 * MS)]
    events = sort(Material(MAIN, sorted(raws, key=lambda raw: raw.start), marked))
    assert of_kind(events, "forward") == [(5 * MS, 8 * MS)]
    assert of_kind(events, "backward") == [(8 * MS, 11 * MS)]
    assert [(e.name, e.start) for e in events if e.kind == "communication"] == [
        ("all_reduce", 10 * MS)
    ]
    assert of_kind(events, "blocked") == [(11 * MS, 15 * MS)]


def test_a_forward_whose_kernels_pause_stays_one_forward():
    """A GPU is often done with a small kernel before the next one is launched."""
    marked = [mark("forward", 0, 2 * MS), mark("forward", 2 * MS, 4 * MS)]
    raws = []
    for number, (launch, start) in enumerate([(0, 1), (1, 3), (2, 3.01), (3, 6)], 1):
        launched, began = launch * MS + 1, int(start * MS)
        raws.append(Raw("cudaLaunchKernel", launched, launched, MAIN, correlation=number))
        raws.append(Raw("gemm", began, began + 1000, 7, device=True, correlation=number))
    names = [e.name for e in sort(Material(MAIN, raws, marked)) if e.kind == "forward"]
    assert names == ["Net", "Net (continued)", "Net", "Net (continued)"]
