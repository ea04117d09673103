"""Programs that wait for long but are correct: none is ever called a deadlock.

False alarms came 0.6 to 4 s into a wait, so each program lets somebody wait for about that long.
It passes if its results are right, nothing is warned of, and nothing was done to the ranks: no
error, no group rebuilt, and the next all_reduce is right. The programs stand in
``tests/support/correct_programs``.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

import labkit
from tests.support.cells import inside, results, send_cell, warnings, watch_cell
from tests.support.correct_programs import calls, limits, providers, slow, worlds
from tests.support.correct_programs.program import Program

pytestmark = pytest.mark.slow

LabOf = Callable[[int], labkit.Lab]
#: Waits for the end of what a test has started.
Finish = Callable[[], object]

TABLES = (providers, worlds, limits, slow, calls)
CASES = [
    pytest.param(program, size, id=f"{size} ranks: {program.name}")
    for size in (2, 4)
    for table in TABLES
    for program in table.PROGRAMS
    if size in program.sizes
]
#: After which a program that hangs is ended, as a stop button would.
SECONDS = 150.0

ADD_UP = "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\n"
RECEIVE = "x = torch.zeros(1)\ndist.recv(x, 1)\nx.item()"
#: For rank 1, without the names of a cell.
SEND = "import torch, torch.distributed as dist; dist.send(torch.tensor([5.0]), 0)"
SEND_LATE = f"import time; time.sleep(2.5); {SEND}"
OTHER_CLIENT = """
import json, sys, time
import ipyparallel
with ipyparallel.Client(json.loads(sys.argv[1])) as client:
    print("connected", flush=True)
    time.sleep(2.5)
    client[int(sys.argv[2])].apply_sync(exec, sys.argv[3], {})
"""
#: Another notebook: two ranks that come late to the group of four.
OTHER_LAB = """
import sys, labkit

def join(path):
    import os, time, torch, torch.distributed as dist
    rank = int(os.environ["LOCAL_RANK"])
    time.sleep(2.5)
    dist.init_process_group("gloo", init_method=path, rank=2 + rank, world_size=4)
    x = torch.tensor([rank + 3.0])
    time.sleep(2.5)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x.item()

with labkit.start(2, join=False) as lab:
    print(lab.run(join, sys.argv[1]))
"""


@pytest.fixture(scope="module")
def lab_of() -> Iterator[LabOf]:
    """Give a lab of n ranks: the last one that was asked for, if it has as many."""
    with contextlib.ExitStack() as stack:
        labs: list[labkit.Lab] = []

        def get(n: int) -> labkit.Lab:
            if not labs or len(labs[-1]) != n:
                stack.close()
                labs.append(stack.enter_context(labkit.start(n)))
            return labs[-1]

        yield get


def run(lab: labkit.Lab, code: str, ranks: Sequence[int] | None = None) -> list[str | None]:
    """Run a cell on some ranks (all if None); return what their last lines show."""
    sent = send_cell(lab, f"#px In[7]\n{code}\n", ranks)
    finished = watch_cell(sent, SECONDS)
    assert not finished.ending.kind, finished.ending
    assert warnings(finished.outcomes) == []
    return results(finished.outcomes)


def run_all(lab: labkit.Lab, program: Program) -> None:
    """Run a program's cells and compare what the last one shows."""
    for cell in program.cells[:-1]:
        run(lab, cell)
    expected = [None if value is None else repr(value) for value in program.expected(len(lab))]
    assert run(lab, program.cells[-1]) == expected


@contextlib.contextmanager
def left_alone(lab: labkit.Lab) -> Iterator[None]:
    """Check that the ranks are in the same group afterwards, and in step; a test that fails gives
    the next one fresh ranks."""
    n = len(lab)
    try:
        run(lab, "world_before = dist.group.WORLD")
        yield
        same = run(lab, ADD_UP + "(dist.group.WORLD is world_before, x.item())")
        assert same == [repr((True, n * (n + 1) / 2))] * n
    except BaseException:
        lab.restart()
        raise


@pytest.mark.parametrize(("program", "size"), CASES)
def test_a_correct_program_is_no_deadlock(lab_of: LabOf, program: Program, size: int) -> None:
    lab = lab_of(size)
    with left_alone(lab):
        run_all(lab, program)
    if program.reset:
        lab.reset()


# -- ranks that something else than the cell drives ---------------------------------------------


def by_a_task(lab: labkit.Lab) -> Finish:
    view = lab.client.load_balanced_view(targets=[lab.engine_ids[1]])
    return partial(view.apply_async(exec, SEND_LATE, {}).get, SECONDS)


def by_a_direct_view(lab: labkit.Lab) -> Finish:
    view = lab.client[lab.engine_ids[1]]
    return partial(view.apply_async(exec, SEND_LATE, {}).get, SECONDS)


def by_a_timer_that_sends_it_later(lab: labkit.Lab) -> Finish:
    timer = threading.Timer(2.5, lab.client[lab.engine_ids[1]].apply_async, (exec, SEND, {}))
    timer.start()
    return timer.join


def by_a_second_client(lab: labkit.Lab) -> Finish:
    client = inside(lab).cluster.launcher.connect()
    client[lab.engine_ids[1]].apply_async(exec, SEND_LATE, {})
    return client.close


def by_an_alarm_of_the_notebook(lab: labkit.Lab) -> Finish:
    view = lab.client[lab.engine_ids[1]]

    def ring(signum: int, frame: object) -> None:
        view.apply_async(exec, SEND, {})

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 2.5)

    def end() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # else it ends pytest, if the cell ended early
        signal.signal(signal.SIGALRM, before)

    return end


def by_another_process(lab: labkit.Lab) -> Finish:
    """Another notebook, which has not used the rank before it sends."""
    found = inside(lab).cluster.launcher.cluster.controller.get_connection_info()
    info = asyncio.run(found) if inspect.isawaitable(found) else found
    arguments = [json.dumps(info["client"]), str(lab.engine_ids[1]), SEND]
    command = [sys.executable, "-c", OTHER_CLIENT, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "connected\n"

    def end() -> None:
        try:
            process.communicate(timeout=30)
        finally:  # else every later test of this process finds it below itself
            process.kill()
            process.wait()

    return end


def by_a_cell_that_nobody_follows(lab: labkit.Lab) -> None:
    send_cell(lab, f"#px In[6]\n{SEND_LATE}\n", [1])


def by_lab_run_in_a_thread(lab: labkit.Lab) -> Finish:
    code = SEND_LATE
    thread = threading.Thread(target=lambda: lab.run(lambda: exec(code, {}), ranks=[1]))
    thread.start()
    return thread.join


#: Those of another client last: once a rank has served one, labkit has its doubts for good.
DRIVERS = [
    by_a_task,
    by_a_direct_view,
    by_a_timer_that_sends_it_later,
    by_an_alarm_of_the_notebook,
    by_a_cell_that_nobody_follows,
    by_lab_run_in_a_thread,
    by_another_process,
    by_a_second_client,
]


@pytest.mark.parametrize("drive", DRIVERS, ids=lambda drive: drive.__name__)
def test_a_rank_is_driven_beside_the_cell(
    lab_of: LabOf, drive: Callable[[labkit.Lab], Finish | None]
) -> None:
    lab = lab_of(4)
    with left_alone(lab):
        finish_driving = drive(lab)
        try:
            assert run(lab, RECEIVE, [0]) == ["5.0"]
        finally:
            if finish_driving is not None:
                finish_driving()


# -- labs whose group is left to the learner ----------------------------------------------------


@pytest.fixture(scope="module")
def unjoined() -> Iterator[labkit.Lab]:
    with labkit.start(4, join=False) as started:
        yield started


@pytest.mark.parametrize("program", worlds.UNJOINED, ids=lambda program: program.name)
def test_a_world_that_is_not_the_lab(
    unjoined: labkit.Lab, program: Program, tmp_path: Path
) -> None:
    unjoined["place"] = str(tmp_path / "world")
    try:
        run_all(unjoined, program)
        assert run(unjoined, "dist.is_initialized()") == ["False"] * 4
    except BaseException:
        unjoined.restart()
        raise


def test_two_notebooks_form_one_world(tmp_path: Path) -> None:
    path = f"file://{tmp_path}/world"
    code = f"""
dist.init_process_group("gloo", init_method="{path}", rank=rank, world_size=4)
x = torch.tensor([rank + 1.0])
dist.all_reduce(x)
dist.destroy_process_group()
x.item()
"""
    command = [sys.executable, "-c", OTHER_LAB, path]
    with (
        labkit.start(2, join=False) as lab,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other,
    ):
        try:
            assert run(lab, code) == ["10.0"] * 2
            out, _ = other.communicate(timeout=SECONDS)
        finally:
            other.terminate()  # the ranks of that lab end with it
        assert (out, other.returncode) == ("[10.0, 10.0]\n", 0)
