"""What becomes of errors, deaths and deadlocks that come together: one error, the cause first."""

from __future__ import annotations

import dataclasses
import re
import signal
import threading
from types import SimpleNamespace

import pytest

from labkit.base import errors
from labkit.base.errors import Deadlock, Interrupted, RankDied, RankError, SuspectedDeadlock
from labkit.deadlock.case import Case
from labkit.deadlock.exit_reason import ENDED
from labkit.deadlock.needs import Situation
from labkit.launch.launcher import ForkedLauncher
from labkit.runtime import diagnosis
from labkit.runtime.diagnosis import (
    Ending,
    death_reason,
    is_consequence,
    what_was_done,
    without_torch_log,
)
from labkit.wire import texts
from labkit.wire.samples import Entry, Group, Sample, Wait

WORLD = ("0", (0, 1, 2))
WAIT = Wait("collective", ((WORLD, 1),), call="barrier", where="In[7], line 2")


def entry(shape=(4,), kind="Float", name="all_reduce", number=1):
    return Entry(number, name, (shape,) if shape else (), (kind,) if shape else (), False)


def sample(rank, *entries, wait=None):
    listed = {e.number: e for e in entries}
    group = Group(WORLD, max(listed, default=0), listed, {}, 0)
    return Sample(rank, "waiting" if wait else "idle", True, wait, groups={WORLD: group})


def waited(stuck=(1, 2), gone=(0,), *, wait=WAIT):
    samples = {r: sample(r, entry(None, name="barrier"), wait=wait) for r in stuck}
    exit_reasons = dict.fromkeys(gone, ENDED)
    return Case(Situation(3, samples, frozenset(gone)), frozenset(stuck), exit_reasons)


def judge(manager, *rest):
    return diagnosis.judge(manager.cluster, manager.join, *rest)


def manager(*, join=True, deaths=None, starter_ended=False):
    warm = SimpleNamespace(closed=threading.Event(), root="")
    if starter_ended:
        warm.closed.set()
    cluster = SimpleNamespace(deaths=deaths or {}, launcher=ForkedLauncher(warm))
    return SimpleNamespace(join=join, cluster=cluster)


def raised(name, message=""):
    return name, message, [f"{name}: {message}"]


DEADLOCK = Ending("deadlock", [1, 2], case=waited(), repaired=True)
KILLED = {0: -signal.SIGKILL}
LOST = raised("RuntimeError", "Connection closed by peer [127.0.0.1]:1234")
BOOM = raised("ValueError", "boom")


def test_ranks_that_used_a_group_of_before_are_not_called_out_of_step():
    old = raised("ValueError", f"pair (sub-group) {texts.BELONGS} lab.reset(): make it again")
    repaired = Ending(repaired=True)
    assert diagnosis.GROUP_ANEW not in str(judge(manager(), [], {0: old, 1: old}, repaired))
    assert diagnosis.GROUP_ANEW in str(judge(manager(), [], {0: old, 1: BOOM}, repaired))


def test_all_went_well():
    assert judge(manager(), [], {}, Ending()) is None


# -- deaths -------------------------------------------------------------------------------------


def test_a_death_comes_before_everything_else():
    errors = {0: raised("OSError", "its last words"), 1: LOST, 2: BOOM}
    error = judge(manager(deaths=KILLED), [0], errors, Ending("died"))
    assert type(error) is RankDied
    assert str(error).splitlines() == [
        "rank 0 ended with signal 9 (SIGKILL).",
        "lab.restart(ranks=[0]) replaces it; the others keep their variables.",
        "rank 2: ValueError: boom",
    ]
    assert len(error.blocks) == 2


def test_a_death_with_ranks_that_waited_and_ranks_that_did_not_return():
    deaths = {0: -signal.SIGKILL, 1: -signal.SIGKILL}
    ending = Ending("died", freed=[2, 3], still=[4], hint="Cause: a hint.")
    error = judge(manager(deaths=deaths), [0, 1], {2: BOOM}, ending)
    assert str(error).splitlines() == [
        "ranks 0–1 ended with signal 9 (SIGKILL).",
        "Cause: a hint.",
        "ranks 2–3 waited and were freed.",
        "rank 4 did not return from the cell.",
        "lab.restart(ranks=[0, 1, 4]) replaces them; the others keep their variables.",
    ]


def test_ranks_that_ended_in_different_ways():
    deaths = {0: 3, 2: -signal.SIGKILL}
    summary, blocks = diagnosis.died(manager(deaths=deaths).cluster, [0, 2])
    head = "rank 0 ended with exit code 3; rank 2 ended with signal 9 (SIGKILL)."
    assert summary.splitlines()[0] == head
    assert blocks[0].splitlines()[0] == f"\x1b[31mRankDied\x1b[0m: {head}"
    error = judge(manager(deaths=KILLED), [0], {}, Ending("died", freed=[1]))
    assert "rank 1 waited and was freed." in str(error).splitlines()


# -- errors -------------------------------------------------------------------------------------


def test_a_true_error_comes_before_the_deadlock_that_it_caused():
    error = judge(manager(), [], {0: BOOM, 1: LOST, 2: LOST}, DEADLOCK)
    assert type(error) is RankError
    assert str(error).splitlines() == [
        "rank 0: ValueError: boom",
        "ranks 1–2 waited in In[7], line 2 for rank 0.",
        "labkit freed ranks 1–2 and formed the process group anew. Variables are kept; make "
        "sub-groups and DDP models again.",
    ]
    assert error.blocks[1].splitlines() == str(error).splitlines()[1:]


def test_a_deadlock_that_another_error_did_not_cause_is_told_in_full():
    ending = Ending("deadlock", [1], case=waited((1,), (0,)))
    lines = str(judge(manager(), [], {2: BOOM}, ending)).splitlines()
    assert lines[0] == "rank 2: ValueError: boom"
    assert lines[1] == "rank 1 waits for rank 0, which has ended its cell."
    assert any(line.startswith("Cause: ") for line in lines)


def test_no_place_is_named_where_ranks_waited_at_several():
    case = waited()
    other = dataclasses.replace(WAIT, where="In[7], line 9")
    case.situation.samples[2] = sample(2, entry(), wait=other)
    error = judge(manager(), [], {0: BOOM}, Ending("deadlock", [1, 2], case=case))
    assert "ranks 1–2 waited for rank 0." in str(error)


def test_what_freed_ranks_raise_is_never_told():
    assert type(judge(manager(), [], {1: BOOM, 2: LOST}, DEADLOCK)) is Deadlock


@pytest.mark.parametrize("consequence", [LOST, raised("KeyboardInterrupt")])
def test_a_consequence_on_another_rank_is_no_error_of_its_own(consequence):
    error = judge(manager(), [], {0: consequence}, DEADLOCK)
    assert type(error) is Deadlock
    assert consequence[0] not in str(error)


def test_an_error_about_connections_counts_where_nothing_else_was_wrong():
    error = judge(manager(), [], {0: LOST}, Ending())
    assert str(error) == f"rank 0: RuntimeError: {LOST[1]}"


@pytest.mark.parametrize(("join", "told"), [(True, True), (False, False)])
def test_an_error_that_left_the_ranks_out_of_step(join, told):
    error = judge(manager(join=join), [], {0: BOOM}, Ending(repaired=True))
    assert (diagnosis.GROUP_ANEW in str(error)) is told
    assert any(diagnosis.GROUP_ANEW in block for block in error.blocks) is told


@pytest.mark.parametrize(
    "message",
    [
        "Connection closed by peer [::1]:4",
        "writev [127.0.0.1]:5: Connection reset by peer",
        "send: Broken pipe",
        "Socket Timeout",
        "recvValue failed on SocketImpl(fd=3)",
        "sendBytes failed on SocketImpl(fd=3)",
        "Timed out waiting 60000ms for recv operation to complete",
        "Application timeout caused pair closure",
    ],
)
def test_messages_that_only_say_that_the_other_end_has_gone(message):
    assert is_consequence(raised("RuntimeError", f"[gloo/x.cc:1] {message}"))


def test_other_messages_are_errors_of_their_own():
    assert not is_consequence(raised("RuntimeError", "mat1 and mat2 shapes cannot be multiplied"))


# -- deadlocks ----------------------------------------------------------------------------------


def test_a_deadlock_is_told_with_what_was_done():
    error = judge(manager(), [], {}, DEADLOCK)
    assert type(error) is Deadlock
    assert "Not proved" not in str(error)
    lines = str(error).splitlines()
    assert lines[0] == "ranks 1–2 wait for rank 0, which has ended its cell."
    assert lines[-1].startswith("labkit freed ranks 1–2 and formed the process group anew.")


# -- what is only suspected -----------------------------------------------------------------------

DOUBT = "a thread of rank 0 is alive: Thread-1 (tick)"
DOUBTED = dataclasses.replace(waited(), doubts=(DOUBT,))
SUSPECTED = Ending("suspected", [1, 2], case=DOUBTED, repaired=True)


def test_a_suspected_deadlock_says_what_could_still_have_come():
    error = judge(manager(), [], {}, SUSPECTED)
    assert type(error) is SuspectedDeadlock
    lines = str(error).splitlines()
    assert lines[0] == "ranks 1–2 wait for rank 0, which has ended its cell."
    assert lines[2] == f"  Not proved: {DOUBT}."
    assert lines[3].startswith("Cause: ")
    assert lines[-1].startswith("labkit freed ranks 1–2 and formed the process group anew.")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", error.blocks[0])
    assert plain.startswith("SuspectedDeadlock: ranks 1–2 wait for rank 0")


def test_a_true_error_comes_before_a_suspicion_that_it_caused():
    error = judge(manager(), [], {0: BOOM, 1: LOST, 2: LOST}, SUSPECTED)
    assert type(error) is RankError
    assert str(error).splitlines()[:2] == [
        "rank 0: ValueError: boom",
        "ranks 1–2 waited in In[7], line 2 for rank 0.",
    ]


@pytest.mark.parametrize(
    ("kind", "expected"), [("interrupted", Interrupted), ("timeout", RankError)]
)
def test_a_stop_tells_what_was_suspected(kind, expected):
    ending = Ending(kind, [1, 2], case=DOUBTED)
    error = judge(manager(), [], dict.fromkeys((1, 2), raised("KeyboardInterrupt")), ending)
    assert type(error) is expected
    lines = str(error).splitlines()
    assert "Suspected deadlock: ranks 1–2 wait for rank 0, which has ended its cell." in lines
    assert f"  Not proved: {DOUBT}." in lines
    assert any(line.startswith("Cause, if it is one: ") for line in lines)
    assert lines[-1] == "labkit freed ranks 1–2; variables are kept."
    shown = error.blocks[-1]
    assert " ".join("\n".join(lines[1:]).split()) in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= errors.WIDTH
    error = judge(manager(), [], {0: raised("KeyboardInterrupt")}, Ending(kind, [0]))
    assert "Suspected" not in str(error)


ANEW = "formed the process group anew. Variables are kept; make sub-groups and DDP models again."
DONE = [
    (True, Ending("deadlock", [0], repaired=True), [f"labkit freed rank 0 and {ANEW}"]),
    (False, Ending("deadlock", [0, 1], repaired=True),
     ["labkit freed ranks 0–1 and left the process group; variables are kept. Run the cell with "
      "init_process_group again."]),
    (True, Ending("deadlock", [0, 1], [1]),
     ["labkit freed ranks 0–1; variables are kept.",
      "rank 1 did not return from the cell; lab.restart(ranks=[1]) replaces it."]),
    (True, Ending("deadlock", [0, 1], [0, 1]),
     ["labkit freed ranks 0–1; variables are kept.",
      "ranks 0–1 did not return from the cell; lab.restart(ranks=[0, 1]) replaces them."]),
    (True, Ending("interrupted", repaired=True), [f"labkit {ANEW}"]),
    (True, Ending(), []),
]  # fmt: skip


@pytest.mark.parametrize(("join", "ending", "lines"), DONE)
def test_what_was_done(join, ending, lines):
    assert what_was_done(join, ending) == lines


# -- hints and logs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (-signal.SIGKILL, "killed from outside"),
        (-signal.SIGSEGV, "a bad memory access"),
        (-signal.SIGBUS, "no room left in /dev/shm"),
        (3, ""),
    ],
)
def test_why_a_signal_ended_a_rank(code, says):
    text = death_reason(manager(deaths={1: code}).cluster, {0: sample(0, entry())})
    assert says in text if says else text == ""


def test_gloo_aborts_where_shapes_differ():
    samples = {
        0: sample(0, entry((3,), name="broadcast"), entry((100,), number=2)),
        2: sample(2, entry((100,), number=2)),
        3: sample(3, entry((3,), "Double", number=2)),
    }
    text = death_reason(manager(deaths={1: -signal.SIGABRT}).cluster, samples)
    assert text.startswith("Cause: gloo aborts a rank that gets more than its tensor holds")
    assert text.endswith(
        ": ranks 0, 2 called all_reduce with float32 [100]; "
        "rank 3 called all_reduce with float64 [3]."
    )


def test_an_abort_without_collectives_is_not_gloos():
    cluster = manager(deaths={1: -signal.SIGABRT}).cluster
    assert death_reason(cluster, {0: sample(0)}) == ""
    assert death_reason(cluster, {0: sample(0, entry(None, name="barrier"))}) == ""


def test_torchs_log_is_taken_out_of_what_a_rank_wrote():
    log = "[E1121 14:36:05.761423 4711 ProcessGroupGloo.cpp:69] Rank 1 failed\n"
    kept = "before\n  [rank1]:[E1121 in the middle of a line\n[Error] mine\n[E12] not a date\n"
    assert without_torch_log(f"{log}{kept}[rank1]:{log}") == kept
    assert without_torch_log(log.replace("[E", "[W").rstrip("\n")) == ""


def test_nobody_is_told_to_restart_ranks_that_nobody_can_start():
    cluster = manager(deaths=KILLED, starter_ended=True).cluster
    summary, _ = diagnosis.died(cluster, [0])
    assert "labkit.start() gives you a new lab." in summary
    assert "restart" not in summary


def test_the_stack_that_follows_torchs_log_goes_with_it():
    stack = (
        "Exception raised from wait at ../x.cpp:17 (most recent call first):\n"
        "frame #0: c10::Error::Error() + 0x9d (0x7f in /somewhere/libc10.so)\n"
        "frame #12: <unknown function> + 0x1 (0x7f in /lib/libc.so.6)\n"
    )
    log = f"[rank1]:[E1121 14:36:05.7 store.cpp:69] waited in vain\n{stack}"
    assert without_torch_log(f"mine\n{log}frame by frame, mine too\n") == (
        "mine\nframe by frame, mine too\n"
    )


TWICE = "trying to initialize the default process group twice!"


def test_who_forms_a_second_group_is_told_how():
    lab = manager()
    lab.cluster.size = 3
    error = judge(lab, [], {0: raised("ValueError", TWICE)}, Ending())
    assert str(error).splitlines()[0] == f"rank 0: ValueError: {TWICE}"
    assert "labkit.start(3, join=False)" in str(error).splitlines()[1]
    assert "labkit.start(3, join=False)" in error.blocks[-1]


def test_who_was_left_to_form_the_group_is_told_nothing_more():
    error = judge(manager(join=False), [], {0: raised("ValueError", TWICE)}, Ending())
    assert str(error) == f"rank 0: ValueError: {TWICE}"
