"""The profiler's events become kinds of work; the cases that a real run shows only by luck."""

from labkit.rank.observe import p2p_record
from labkit.rank.observe.p2p_record import Message
from labkit.rank.profile.classify import MONITORED, Material, for_trace, sort
from labkit.rank.torch_internals.profiling import Raw
from labkit.rank.torch_internals.recorder import Issued

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
    return Raw("gloo:all_reduce", start, stop, thread, scope=7)


def of_kind(events, kind):
    return [(e.start, e.stop) for e in events if e.kind == kind]


def test_torchs_names_and_our_marks_are_told_apart():
    raws = [
        Raw("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 1, MAIN, 7),
        Raw("Optimizer.zero_grad#SGD.zero_grad", 1, 2, MAIN, 7),
        Raw("labkit:forward:Linear", 2, 3, MAIN, 7),
        Raw("labkit:backward:backward", 3, 4, MAIN, 7),
        Raw("Optimizer.step#SGD.step", 4, 5, MAIN, 7),
        Raw("labkit:clock", 5, 6, MAIN, 7),
        Raw("aten::add", 6, 7, MAIN, 0),
        Raw("Optimizer.step#SGD.step", 7, 8, OTHER, 7),  # of another thread
    ]
    found = [(e.kind, e.name) for e in sort(Material(MAIN, raws))]
    assert found == [
        ("data loading", "next batch"),
        ("optimizer", "SGD.zero_grad"),
        ("forward", "Linear"),
        ("backward", "backward"),
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
        Raw("labkit:backward:backward", 0, 20 * MS, MAIN, 7),
        Raw("MmBackward0", 1 * MS, 6 * MS, MAIN, 1),
        reduce(4 * MS, 18 * MS),
    ]
    events = sort(Material(MAIN, raws, entries=[entry(1, 4 * MS)]))
    assert of_kind(events, "blocked") == [(6 * MS, 18 * MS)]


def test_a_collective_ends_when_its_waiter_goes_on():
    """The profiler hears of it later where the thread that ran it was put aside."""
    wait = (2 * MS, 6 * MS, "0", 9)
    events = sort(Material(MAIN, [reduce(2 * MS, 30 * MS)], [wait],
                           [entry(3, 2 * MS, operation=9)]))  # fmt: skip
    assert of_kind(events, "communication") == [(2 * MS, 6 * MS)]
    # or the waiter was, and goes on later
    events = sort(Material(MAIN, [reduce(2 * MS, 5 * MS)], [wait], [entry(3, 2 * MS, operation=9)]))
    assert of_kind(events, "communication") == [(2 * MS, 6 * MS)]
    # it was done before anybody waited
    wait = (7 * MS, 8 * MS, "0", 9)
    events = sort(Material(MAIN, [reduce(2 * MS, 5 * MS)], [wait], [entry(3, 2 * MS, operation=9)]))
    assert of_kind(events, "communication") == [(2 * MS, 5 * MS)]
    backward = Raw("labkit:backward:backward", 0, 10 * MS, MAIN, 7)
    events = sort(Material(MAIN, [backward, reduce(2 * MS, 30 * MS)], entries=[entry(1, 2 * MS)]))
    assert of_kind(events, "communication") == [(2 * MS, 10 * MS)]
    # waited for after the backward, so not DDP's
    wait = (15 * MS, 16 * MS, "0", 1)
    events = sort(Material(MAIN, [backward, reduce(2 * MS, 30 * MS)], [wait],
                           [entry(1, 2 * MS)]))  # fmt: skip
    assert of_kind(events, "communication") == [(2 * MS, 16 * MS)]


def test_messages_are_matched_in_order_and_have_a_key_that_both_ends_know():
    groups = {"g": [4, 7]}

    def talk(event, start, message):
        raws = [Raw(event, start, 9, MAIN, 7)]
        return sort(Material(MAIN, raws, messages=[(2, message)], groups=groups))[0]

    sent = talk("gloo:send", 5, Message("g", "send", 1, 5, 3, 0))
    got = talk("gloo:recv", 1, Message("g", "recv", 0, 5, 3, 1))
    assert (sent.name, got.name) == ("send to rank 7", "recv from rank 4")
    assert sent.key == got.key == ("message", "g", (4, 7), 0, 1, 5, 3)
    assert (sent.start, got.start) == (2, 1), "it counts from the call"
    anybody = talk("gloo:recvAnySource", 1, Message("g", "recv_any", -1, 5, 1, 1))
    assert (anybody.name, anybody.key) == ("recv", ())


def test_the_messages_of_a_monitored_barrier_are_its_own():
    raws = [Raw("gloo:send", 3, 4, MAIN, 7), Raw("gloo:send", 12, 13, MAIN, 7)]
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
        Raw("labkit:forward:Net", 0, 2 * MS, MAIN, 7),
        Raw("labkit:backward:backward", 2 * MS, 4 * MS, MAIN, 7),
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
        Raw("nccl:all_reduce", 3 * MS, 3 * MS, MAIN, 7),
    ]
    events = sort(Material(MAIN, raws))
    assert of_kind(events, "forward") == [(5 * MS, 8 * MS)]
    assert of_kind(events, "backward") == [(8 * MS, 11 * MS)]
    assert [(e.name, e.start) for e in events if e.kind == "communication"] == [
        ("all_reduce", 10 * MS)
    ]
    assert of_kind(events, "blocked") == [(11 * MS, 15 * MS)]


def test_a_forward_whose_kernels_pause_stays_one_forward():
    """A GPU is often done with a small kernel before the next one is launched."""
    raws = [
        Raw("labkit:forward:Net", 0, 2 * MS, MAIN),
        Raw("labkit:forward:Net", 2 * MS, 4 * MS, MAIN),
    ]
    for number, (launch, start) in enumerate([(0, 1), (1, 3), (2, 3.01), (3, 6)], 1):
        launched, began = launch * MS + 1, int(start * MS)
        raws.append(Raw("cudaLaunchKernel", launched, launched, MAIN, correlation=number))
        raws.append(Raw("gemm", began, began + 1000, 7, device=True, correlation=number))
    names = [e.name for e in sort(Material(MAIN, raws)) if e.kind == "forward"]
    assert names == ["Net", "Net (continued)", "Net", "Net (continued)"]


def test_the_trace_keeps_the_first_events_and_none_of_ours():
    raws = [Raw("aten::b", 5, 6, MAIN), Raw("labkit:clock", 0, 1, MAIN), Raw("aten::a", 1, 9, 77),
            reduce(2, 3), Raw("kernel", 7, 8, 4, device=True)]  # fmt: skip
    shown = for_trace(raws, {MAIN: "main"}, 2)
    assert [(e.name, e.thread) for e in shown] == [("aten::a", "77"), ("aten::b", "main")]
    assert for_trace(raws, {}, 9)[-1].thread == "GPU stream 4"
