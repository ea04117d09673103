"""Several ranks' recordings come onto one clock, and it shows who waited for whom."""

import threading
import time

import pytest
import torch.distributed as dist

from labkit import LabError
from labkit.base import times
from labkit.notebook.timeline.timeline import Timeline
from labkit.rank.profile import clocks
from labkit.wire.recording import Event, Recording

MS = 1_000_000


def reduce(start, stop, number=1, name="all_reduce"):
    key = ("collective", "0", (0, 1), number)
    return Event("communication", name, start * MS, stop * MS, 400, key, (0, 1))


def recording(rank, *events, start=0, stop=100, offset=0, error=0, notes=()):
    return Recording(rank, start * MS, stop * MS, list(events), b"", offset, error, list(notes))


def of_kind(timeline, kind):
    return [(s.rank, round(s.start, 6), round(s.stop, 6)) for s in timeline.spans
            if s.kind == kind]  # fmt: skip


def test_the_early_rank_waits_until_the_late_one_comes():
    timeline = Timeline([recording(0, reduce(10, 50)), recording(1, reduce(40, 50))])
    assert of_kind(timeline, "waiting") == [(0, 0.01, 0.04)]
    (span,) = [s for s in timeline.spans if s.kind == "waiting"]
    assert span.name == "all_reduce: rank 1 had not come"
    assert timeline.seconds("waiting", 0) == pytest.approx(0.03)
    assert timeline.seconds("waiting", 1) == 0
    assert {s.number for s in timeline.spans} == {1}


def test_nobody_waits_for_a_rank_that_came_after_the_end():
    """A broadcast's source may leave before the others have come."""
    timeline = Timeline([recording(0, reduce(10, 20, name="broadcast")),
                         recording(1, reduce(40, 50, name="broadcast"))])  # fmt: skip
    assert of_kind(timeline, "waiting") == []


def test_a_skewed_clock_is_set_right():
    """Rank 1's clock is 70 ms ahead: it came early and seems to have come after the end."""
    early = reduce(110, 150)
    skewed = recording(1, early, start=70, stop=170)
    assert of_kind(Timeline([recording(0, reduce(70, 80)), skewed]), "waiting") == []
    right = recording(1, early, start=70, stop=170, offset=-70 * MS)
    timeline = Timeline([recording(0, reduce(70, 80)), right])
    assert of_kind(timeline, "waiting") == [(1, 0.04, 0.07)]


def test_what_may_be_the_clocks_error_is_no_waiting():
    late = Timeline([recording(0, reduce(10, 50)), recording(1, reduce(12, 50))])
    assert of_kind(late, "waiting") == [(0, 0.01, 0.012)]
    unsure = Timeline([recording(0, reduce(10, 50)), recording(1, reduce(12, 50), error=3 * MS)])
    assert of_kind(unsure, "waiting") == []
    assert unsure.clock_error == pytest.approx(0.003)


def test_numbers_are_the_same_on_every_rank_and_count_from_one():
    timeline = Timeline([
        recording(0, reduce(10, 20, 71), reduce(30, 40, 72)),
        recording(1, reduce(12, 20, 71), reduce(29, 40, 72)),
    ])  # fmt: skip
    numbers = [(s.rank, s.number) for s in timeline.spans if s.kind == "communication"]
    assert numbers == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_shares_are_of_the_time_in_which_something_of_the_kind_went_on():
    events = [
        Event("backward", "backward", 0, 60 * MS),
        reduce(20, 50, 1), reduce(30, 70, 2),
        Event("blocked", "", 45 * MS, 60 * MS),
    ]  # fmt: skip
    timeline = Timeline([recording(0, *events), recording(1, stop=300)])
    assert timeline.share("communication", 0) == pytest.approx(0.5)
    assert timeline.share("communication", 1) == 0
    assert timeline.share("communication") == pytest.approx(0.05 / 0.4)
    assert timeline.overlap(0) == pytest.approx(35 / 50)
    assert timeline.overlap(1) == 0


def test_spans_end_with_the_recording():
    timeline = Timeline([recording(0, reduce(-5, 500), start=0, stop=100)])
    assert of_kind(timeline, "communication") == [(0, 0.0, 0.1)]


def test_the_text_has_counts_and_no_time():
    steps = [Event("optimizer", name, 0, MS) for name in ("SGD.zero_grad", "SGD.step")]
    names = ("Net", "loss", "Net (continued)")  # the last after a pause of a GPU
    forward = [Event("forward", name, 0, MS) for name in names]
    both = [*forward, *steps, reduce(10, 20)]
    timeline = Timeline([recording(0, *both), recording(1, *both), recording(2)])
    assert repr(timeline) == (
        "Timeline of ranks 0–2\n"
        "ranks 0–1: 1 × forward, 1 × optimizer, 1 × all_reduce\n"
        "rank 2: nothing that a timeline shows"
    )


def test_notes_name_their_ranks():
    timeline = Timeline([recording(r, notes=["It stopped."] if r else []) for r in range(3)])
    assert timeline.notes == ["Ranks 1–2: It stopped."]
    assert repr(timeline).endswith("\nRanks 1–2: It stopped.")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: t.share("talking"), "The kinds of a timeline are data loading, .*'talking'"),
        (lambda t: t.share("forward", 3), "This timeline is of rank 0; it has no rank 3"),
        (lambda t: t.overlap(3), "it has no rank 3"),
    ],
)
def test_what_is_not_there_is_refused(ask, message):
    with pytest.raises(LabError, match=message):
        ask(Timeline([recording(0)]))


# -- clocks -------------------------------------------------------------------------------------


def on_threads(hosts, skews, store):
    """Let each rank align its skewed clock in a thread; return what it found."""
    found = {}

    def align(rank):
        now = lambda: time.time_ns() + skews[hosts[rank]]  # noqa: E731
        found[rank] = clocks.align(store, "key", rank, hosts, now)

    threads = [threading.Thread(target=align, args=(rank,)) for rank in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def test_hosts_find_out_how_far_their_clocks_are_apart():
    hosts = {0: "a", 2: "b", 3: "b", 5: "c"}
    skews = {"a": 0, "b": 3_600_000 * MS, "c": -40 * MS}
    found = on_threads(hosts, skews, dist.HashStore())
    assert found[0] == (0, 0)
    for rank, host in hosts.items():
        offset, error = found[rank]
        assert abs(offset + skews[host]) <= error or rank == 0
        assert error < 50 * MS


def test_ranks_on_one_host_ask_nobody():
    assert clocks.align(None, "key", 1, {0: "a", 1: "a"}) == (0, 0)


def test_nobody_waits_for_ever(monkeypatch):
    monkeypatch.setattr(times, "CLOCKS_COMPARED", times.Bound(0.2))
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        clocks.meet(dist.HashStore(), "key", 2)
    with pytest.raises(RuntimeError):
        clocks.align(dist.HashStore(), "key", 0, {0: "a", 1: "b"})
    assert time.monotonic() - began < 5
