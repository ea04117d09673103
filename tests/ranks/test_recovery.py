"""Interrupts, stopped processes, dead ranks: the notebook comes back and the lab works."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import textwrap
import threading
import time

import psutil
import pytest

import labkit
from labkit import LabError, RankDied
from labkit.runtime import control, diagnosis, recovery
from labkit.runtime.control import list_states
from labkit.runtime.watchdog import Watcher
from tests.conftest import descendants, freeze
from tests.support.cells import finish_cell, inside, results, run_cell, send_cell
from tests.support.events import HANG_SECONDS, LONG, busy_with, stop_pressed, until

#: Three ranks wait for rank 2, which sleeps.
SLOW = f"import time\nif rank == 2:\n    time.sleep({LONG})\ndist.barrier()"
THREE_WAIT = busy_with({0: "waiting", 1: "waiting", 3: "waiting"}, {2: "time.sleep"})


@pytest.fixture
def lab(lab4):
    """Four ranks, all alive, with a variable of their own."""
    if inside(lab4).cluster.deaths or inside(lab4).group.broken:
        lab4.restart()
    run(lab4, "mark = rank * 10")
    return lab4


def run(lab, code, ranks=None):
    """Run a cell to its end; return its results as text."""
    return results(run_cell(lab, code, ranks))


def at_work(states):
    """Tell whether no rank has nothing to do; one in C code gives no answer."""
    return all(state.state != "idle" for state in states)


def interrupted(lab, code, when=at_work):
    """Run a cell, press the stop button once what the ranks do is true; return what came of it.

    No code here ends by itself: what comes back was brought back.
    """
    sent = send_cell(lab, code)
    with stop_pressed(when):
        finished = finish_cell(sent)
    assert isinstance(finished.error, KeyboardInterrupt)
    return finished


def noticed(lab, deaths=1):
    """Wait until the lab knows of deaths."""
    until(lambda: len(inside(lab).cluster.deaths) == deaths)


def usable(lab):
    assert run(lab, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()") == ["4.0"] * 4


def keeps_marks(lab, ranks):
    assert run(lab, "mark", ranks) == [str(r * 10) for r in ranks]


def test_computing_ranks_stop_and_keep_their_group(lab):
    port = run(lab, "import os\nos.environ['MASTER_PORT']", [0])
    finished = interrupted(lab, "while True:\n    pass")
    assert (list(finished.ending.freed), list(finished.ending.still)) == ([], [])
    assert run(lab, "os.environ['MASTER_PORT']", [0]) == port
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_ranks_that_wait_for_a_slow_one_are_freed(lab):
    finished = interrupted(lab, SLOW, THREE_WAIT)
    # Where the machine is busy, so is one that takes its time to end.
    assert set(finished.ending.freed) >= {0, 1, 3}
    assert not finished.ending.still
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_an_interrupt_between_two_collectives_leaves_the_ranks_in_step(lab):
    code = (
        "import time\nx = torch.ones(1)\nwhile True:\n    dist.all_reduce(x)\n    time.sleep(0.01)"
    )
    interrupted(lab, code)
    for _ in range(3):
        usable(lab)


#: Rank 3 computes in C code and gives no answer.
IN_C = busy_with({0: "waiting", 1: "waiting", 2: "waiting", 3: "no answer"})


#: Rank 1 is late, and the others look for its address.
LATE_GROUP = """
from torch.distributed import ProcessGroupGloo
connect = ProcessGroupGloo.__init__
def late(*given, **named):
    import time
    time.sleep(1000)
if rank == 1:
    ProcessGroupGloo.__init__ = late
try:
    dist.new_group()
finally:
    ProcessGroupGloo.__init__ = connect
"""


def test_a_group_that_is_still_connected_does_not_block_the_next(lab):
    """A rank that was interrupted meanwhile goes on, and holds its connection with the store."""
    three = busy_with({0: "waiting", 2: "waiting", 3: "waiting"}, {1: "time.sleep"})
    interrupted(lab, LATE_GROUP, three)
    run(lab, "group = dist.new_group()\ndist.barrier(group)")
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_a_rank_in_c_code_is_named_and_replaced_by_itself(lab):
    code = "if rank == 3:\n    sum(range(10**10))\ndist.barrier()"
    finished = interrupted(lab, code, IN_C)
    assert finished.ending.still == [3]
    said = " ".join(diagnosis.what_was_done(inside(lab).group.join, finished.ending))
    assert "rank 3 did not return from the cell; lab.restart(ranks=[3]) replaces it" in said
    with pytest.raises(
        LabError,
        match=r"Rank 3 did not return from an earlier cell.* in C code, or in an import \(line 2\)",
    ):
        run(lab, "1")
    lab.restart(ranks=[3])
    usable(lab)
    keeps_marks(lab, [0, 1, 2])


def test_ranks_that_take_long_to_end_are_waited_for(lab):
    """So it is for all of them where many people share the processors."""
    code = """
import time
try:
    time.sleep(1000)
finally:
    end = time.monotonic() + 1.6
    while time.monotonic() < end:
        try:
            time.sleep(0.02)
        except KeyboardInterrupt:
            pass
"""
    finished = interrupted(lab, code, lambda states: all("1000" in s.line for s in states))
    assert not finished.ending.still
    assert not finished.ending.in_c
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_a_rank_in_c_code_is_kept_if_it_returns(lab):
    code = "if rank == 3:\n    sum(range(3 * 10**8))\ndist.barrier()"
    finished = interrupted(lab, code, IN_C)
    assert finished.ending.in_c == {3: "line 2"}
    said = diagnosis.what_was_done(inside(lab).group.join, finished.ending)
    assert said[-1] == (
        "rank 3 is in C code, or in an import, and cannot be interrupted: line 2. If you wait "
        "until it returns, the variables are kept."
    )
    until(lambda: not inside(lab).cluster.busy_ranks())  # a cell waits for a while only
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_a_rank_whose_thread_is_freed_does_not_go_on(lab):
    """Its thread catches what it is freed with, and the rank would call what rank 2 waits for."""
    code = """
    import threading
    went_on, x = False, torch.ones(1)
    def meet():
        try:
            dist.all_reduce(x, group=pair)
        except RuntimeError:
            pass
    if rank == 1:
        helper = threading.Thread(target=meet)
        helper.start()
        helper.join()
        went_on = True
        dist.recv(x, 2)
    elif rank == 2:
        dist.isend(x, 1).wait()
        dist.recv(x, 1)
    """
    run(lab, "pair = dist.new_group([0, 1])")
    finished = finish_cell(send_cell(lab, textwrap.dedent(code)))
    assert isinstance(finished.error, labkit.Deadlock)
    assert run(lab, "went_on") == ["False"] * 4
    usable(lab)


def test_a_regular_expression_is_interrupted(lab):
    finished = interrupted(lab, "import re\nre.match('(a+)+b', 'a' * 60)")
    assert not finished.ending.still
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_processes_that_a_stopped_cell_has_started_end(lab, marks):
    before = {process.pid for process in descendants()}
    code = (
        "import time, torch.multiprocessing as mp\n"
        f"def work(i):\n    {marks.make('(rank, i)')}\n    time.sleep({LONG})\n"
        "mp.start_processes(work, nprocs=2, start_method='fork')"
    )
    interrupted(lab, code, lambda states: marks.count() == 8)
    until(lambda: {process.pid for process in descendants()} <= before)
    keeps_marks(lab, [0, 1, 2, 3])


def test_a_stopped_process_is_named_and_holds_nobody(lab):
    pid = lab.status()[2].pid
    sent = send_cell(lab, "import time\ntime.sleep(0.3)\ndist.barrier()")
    freeze(pid)
    watcher = Watcher(inside(lab).cluster, [0, 1, 2, 3])
    enough = time.monotonic() + 1.5
    while time.monotonic() < enough or watcher.waits().keys() < {0, 1, 3}:
        assert watcher.poll([], {}, 0.2) is None  # it may go on: no deadlock
    said = [state.describe() for state in list_states(inside(lab).cluster, watcher.waits())]
    assert said[2] == "no answer (its process is stopped: SIGSTOP or a debugger)"
    assert all(said[rank].startswith("waiting in barrier") for rank in (0, 1, 3))

    with stop_pressed(busy_with({0: "waiting", 1: "waiting", 3: "waiting"})):
        assert finish_cell(sent).ending.still == [2]
    lab.restart(ranks=[2])
    usable(lab)
    keeps_marks(lab, [0, 1, 3])


def test_a_stopped_process_that_goes_on_is_waited_for(lab):
    pid = lab.status()[1].pid
    freeze(pid)
    threading.Timer(2.0, os.kill, [pid, signal.SIGCONT]).start()
    usable(lab)


def test_one_rank_is_replaced_and_the_others_keep_their_variables(lab):
    victim = lab.status()[2].pid
    others = [s.pid for s in lab.status() if s.rank != 2]
    os.kill(victim, signal.SIGKILL)
    noticed(lab)
    with pytest.raises(RankDied, match=r"rank 2 ended with signal 9 \(SIGKILL\)"):
        run(lab, "1")
    lab.restart(ranks=[2])
    assert [s.pid for s in lab.status() if s.rank != 2] == others
    assert run(lab, "rank, world_size") == [f"({r}, 4)" for r in range(4)]
    usable(lab)
    keeps_marks(lab, [0, 1, 3])
    assert not psutil.pid_exists(victim)


def test_restarting_some_must_not_leave_a_dead_one_out(lab):
    for rank in (1, 3):
        os.kill(lab.status()[rank].pid, signal.SIGKILL)
    noticed(lab, 2)
    with pytest.raises(LabError, match=r"Rank 3 ended too; .* lab.restart\(ranks=\[1, 3\]\)"):
        lab.restart(ranks=[1])
    with pytest.raises(LabError, match=r"Ranks 1, 3 ended; lab.restart\(ranks=\[1, 3\]\) first"):
        lab.reset()
    lab.restart(ranks=[1, 3])
    usable(lab)
    keeps_marks(lab, [0, 2])


@pytest.fixture
def importable(tmp_path):
    """Write packages that take their time while they are imported, where libraries are and where
    the learner's own modules are."""

    def write(folder, name, text):
        (tmp_path / folder / name).mkdir(parents=True)
        (tmp_path / folder / name / "part.py").write_text("value = 1\n")
        (tmp_path / folder / name / "__init__.py").write_text(textwrap.dedent(text))
        return f"import sys\nsys.path.insert(0, {str(tmp_path / folder)!r})\nimport {name}"

    return write


def test_an_import_of_a_library_ends_before_the_interrupt_comes(lab, importable, marks):
    """Cut in the middle, its parts stay, and it can never be imported again."""
    text = f"""
        import os, sys, time
        {marks.make("os.getpid()")}
        sys.imported = getattr(sys, "imported", 0) + 1
        import slow_library.part
        time.sleep(1.5)
        done = slow_library.part.value
    """
    cell = importable("site-packages", "slow_library", text)
    slow = f"{cell}\nimport time\ntime.sleep({LONG})"
    finished = interrupted(lab, slow, lambda states: marks.count() == 4)
    assert finished.ending.still == []
    assert run(lab, "import slow_library\n(slow_library.done, sys.imported)") == ["(1, 1)"] * 4
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_an_interrupt_that_waits_for_an_import_ends_no_later_cell(lab, importable, marks):
    text = f"import os, time\n{marks.make('os.getpid()')}\ntime.sleep(1)"
    cell = importable("site-packages", "last_library", text)
    sent = send_cell(lab, cell)
    until(lambda: marks.count() == 4)
    control.send_signal(inside(lab).cluster, [0, 1, 2, 3], "SIGINT")
    finish_cell(sent)  # the import was all there was to it: what came of it is chance
    assert run(lab, "import time\ntime.sleep(0.3)\nlast_library.__name__") == ["'last_library'"] * 4


def test_an_import_of_the_learners_own_module_is_interrupted_at_once(lab, importable, marks):
    text = f"import os, time\n{marks.make('os.getpid()')}\ntime.sleep({LONG})"
    cell = importable("own", "own_module", text)
    finished = interrupted(lab, cell, lambda states: marks.count() == 4)
    assert finished.ending.still == []
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_ranks_out_of_step_after_an_error_are_put_in_step(lab):
    code = "x = torch.ones(1)\nif rank == 1:\n    1 / 0\nwork = dist.all_reduce(x, async_op=True)"
    with pytest.raises(labkit.RankError, match="The ranks were out of step"):
        run(lab, code)
    usable(lab)
    keeps_marks(lab, [0, 1, 2, 3])


def test_ranks_that_made_unlike_numbers_of_groups_before_an_error_are_put_in_step(lab):
    """Torch names a group after their number: the next ones would not find each other."""
    with pytest.raises(labkit.RankError, match="The ranks were out of step"):
        run(lab, "if rank == 3:\n    1 / 0\nfirst = dist.new_group([0, 1])")
    run(lab, "pair = dist.new_group([2, 3])\nif rank > 1:\n    dist.barrier(pair)")
    keeps_marks(lab, [0, 1, 2, 3])


def test_a_sharded_tensor_of_the_next_group_has_its_mesh(lab):
    """Torch remembers results for an equal mesh, whose groups are gone, or others by now."""
    code = """
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import Shard, distribute_tensor
        for _ in range({groups}):
            own = dist.new_group()
        mesh = DeviceMesh.from_group(own, "cpu")
        x = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
        ((x + 1).sum().full_tensor().item(), (x * 2).device_mesh.get_group() is own)
    """
    code = textwrap.dedent(code)
    assert run(lab, code.format(groups=3)) == ["(36.0, True)"] * 4
    interrupted(lab, SLOW, THREE_WAIT)
    usable(lab)
    assert run(lab, code.format(groups=1)) == ["(36.0, True)"] * 4


def test_an_error_that_leaves_the_ranks_in_step_changes_nothing(lab):
    port = run(lab, "import os\nos.environ['MASTER_PORT']", [0])
    with pytest.raises(labkit.RankError, match="ranks 0–3: ZeroDivisionError"):
        run(lab, "x = torch.ones(1)\ndist.all_reduce(x)\n1 / 0")
    assert run(lab, "os.environ['MASTER_PORT']", [0]) == port


def test_connections_of_the_learner_stay(lab):
    code = """
import socket
if rank == 0:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
outside = socket.create_connection(("127.0.0.1", PORT))
if rank:
    dist.barrier()
"""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        with pytest.raises(labkit.Deadlock):
            run(lab, code.replace("PORT", str(server.getsockname()[1])))
        # Those that leave the lab are untouched. (One inside the lab goes with the group.)
        assert run(lab, "outside.send(b'still here')") == ["10"] * 4


def test_a_noblock_cell_and_a_blocking_one_wait_for_each_other(lab):
    view = lab.client.direct_view(lab.engine_ids[1])
    result = view.execute("dist.recv(torch.ones(1), 0)", block=False)
    with pytest.raises(labkit.Deadlock, match="wait for one another"):
        run(lab, "dist.recv(torch.ones(1), 1)", [0])
    assert result.wait(HANG_SECONDS)
    usable(lab)


def test_a_noblock_cell_may_still_bring_what_a_blocking_one_waits_for(lab):
    view = lab.client.direct_view(lab.engine_ids[1])
    view.execute("import time; time.sleep(1.5); dist.send(torch.ones(1) * 7, 0)", block=False)
    assert run(lab, "y = torch.zeros(1)\ndist.recv(y, 1)\ny.item()", [0]) == ["7.0"]


def test_nothing_is_left_of_a_replaced_rank(lab):
    before = len(descendants())
    folder = inside(lab).cluster.launcher.warm.root
    for _ in range(3):
        lab.restart(ranks=[1])
    assert len(descendants()) == before
    assert len(list(folder.glob("*.id"))) == 4
    usable(lab)


def test_out_of_step_is_seen_in_messages_too(lab):
    assert not recovery.out_of_step(inside(lab).cluster)
    run(lab, "if rank == 0:\n    work = dist.isend(torch.ones(1), 1)")
    assert recovery.out_of_step(inside(lab).cluster)
    lab.reset()
    assert not recovery.out_of_step(inside(lab).cluster)


def test_a_child_of_a_freed_rank_does_not_end_its_old_groups(lab):
    """Their destructors would wait there for threads that the fork did not take along."""
    run_cell(lab, "import gc\ngc.disable()")
    for _ in range(2):
        sent = send_cell(lab, "group = dist.new_group()\nif rank: dist.barrier(group)\ndel group")
        assert finish_cell(sent).ending.kind == "deadlock"
    forked = """
    import os, time
    child = os.fork()
    if not child:
        gc.enable()
        gc.collect()
        os._exit(7)
    deadline = time.monotonic() + 120
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    gc.enable()
    ended[0] and os.waitstatus_to_exitcode(ended[1])
    """
    assert results(run_cell(lab, textwrap.dedent(forked))) == ["7"] * len(lab)


# A notebook has one lab: these end the one above.


def test_a_learners_own_group_is_left_and_can_be_formed_again():
    with labkit.start(2, join=False) as lab:
        form = """
store = dist.FileStore(path, world_size)
dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
"""
        with tempfile.TemporaryDirectory() as folder:
            lab["path"] = folder + "/a"
            run(lab, form)
            with pytest.raises(labkit.Deadlock, match="Run the cell with init_process_group again"):
                run(lab, "if rank:\n    dist.barrier()")
            assert run(lab, "dist.is_initialized()") == ["False"] * 2
            lab["path"] = folder + "/b"
            run(lab, form)
            assert run(lab, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()") == ["2.0"] * 2
