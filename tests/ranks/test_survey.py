"""What every rank does now, asked once."""

from __future__ import annotations

import os
import signal

from labkit.runtime import request
from labkit.runtime.control import list_states, survey
from labkit.runtime.watchdog import find_fault
from tests.conftest import freeze
from tests.support.cells import finish_cell, inside, run_cell, send_cell
from tests.support.events import busy_with, until

#: Three ranks wait for rank 3, which does something else.
WAITING = {0: "waiting", 1: "waiting", 2: "waiting", 3: "running"}


def run(lab, code):
    return send_cell(lab, f"#px In[7]\n{code}\n")


def surveyed(cluster, seen):
    """Return the first survey of which something is true."""
    states = []

    def looks():
        states[:] = survey(cluster)
        return seen(states)

    until(looks, instead=lambda: states)
    return states


def looked(cluster):
    """Return what every rank does, by ranks that have all answered."""
    states = []

    def answers():
        states[:] = list_states(cluster)
        return all(state.memory is not None for state in states)

    until(answers, instead=lambda: states)
    return states


def test_who_waits_is_told_with_what_and_where(lab4, gate):
    sent = run(lab4, f"if rank == 3:\n    {gate.wait}\ndist.barrier()")
    states = surveyed(inside(lab4).cluster, busy_with(WAITING, {3: gate.wait}))
    gate.open()
    finish_cell(sent)
    assert states[0].detail.startswith("barrier (collective ")
    assert (states[0].where, states[0].line) == ("In[7], line 4", "dist.barrier()")
    assert states[3].where == "In[7], line 3"


def test_who_waits_in_vain_is_told(lab4):
    cluster = inside(lab4).cluster
    for code, ranks, headline in (
        (
            "if rank != 3:\n    dist.barrier()",
            None,
            "ranks 0–2 wait for rank 3, which has ended its cell.",
        ),
        (
            "dist.barrier()",
            [0],
            "rank 0 waits for ranks 1–3, which were not asked to run the cell.",
        ),
    ):
        sent = send_cell(lab4, code, ranks)
        told = []
        # It looks for a moment each time: a busy machine needs several.
        until(lambda told=told: told.extend(find_fault(cluster, survey(cluster))) or told)
        finish_cell(sent)
        assert told == [f"Deadlock: {headline}"]


def test_of_those_who_wait_for_a_slow_one_nothing_is_told(lab4, gate):
    cluster = inside(lab4).cluster
    sent = run(lab4, f"if rank == 3:\n    {gate.wait}\ndist.barrier()")
    states = surveyed(cluster, busy_with(WAITING, {3: gate.wait}))
    assert find_fault(cluster, states) == []
    gate.open()
    finish_cell(sent)
    assert find_fault(cluster, survey(cluster)) == []


def test_a_function_of_the_notebook_is_named(lab4, gate):
    code = compile(f"def train():\n    {gate.wait}\n", "/tmp/ipykernel_1/2.py", "exec")
    names = {}
    exec(code, names)
    import cloudpickle

    payload = cloudpickle.dumps((names["train"], (), {}))
    sent = request.call(inside(lab4).group, [0], payload)
    state = surveyed(inside(lab4).cluster, lambda states: states[0].where)[0]
    gate.open()
    finish_cell(sent)
    assert state.describe() == "running train, line 2"


def test_a_function_of_an_earlier_cell_is_shown_with_the_line_that_calls_it(lab4, gate):
    run_cell(lab4, f"#px In[2]\ndef f():\n    {gate.wait}", [0])
    sent = send_cell(lab4, "#px In[3]\nf()", [0])
    state = surveyed(inside(lab4).cluster, lambda states: "→" in states[0].where)[0]
    gate.open()
    finish_cell(sent)
    assert state.where == "In[3], line 2 → In[2], line 3"
    assert state.line == gate.wait


def test_memory_is_what_a_rank_has_for_itself(lab4):
    before = looked(inside(lab4).cluster)
    assert all(s.gpu is None and 2**20 < s.memory < 200 * 2**20 for s in before)
    run_cell(lab4, "big = bytearray(b'x') * (64 * 2**20)", [2])
    after = looked(inside(lab4).cluster)
    grown = [b.memory - a.memory for a, b in zip(before, after, strict=True)]
    assert grown[2] > 60 * 2**20
    assert max(grown[:2] + grown[3:]) < 8 * 2**20


def test_memory_between_exact_looks_is_as_exact(lab4):
    def both():
        import time

        import psutil

        from labkit.base import times
        from labkit.rank import memory

        memory.used()
        held = [bytearray(b"x") * (64 * 2**20)]
        looked = memory._exact.when
        estimate = memory.used()
        assert memory._exact.when == looked > time.monotonic() - times.MEMORY_KNOWN
        return estimate, psutil.Process().memory_full_info().uss, len(held)

    for estimate, exact, _ in lab4.run(both):
        assert abs(estimate - exact) < 16 * 2**20  # pages that it has copied since count too


def test_who_is_stopped_or_dead_is_told(lab4):
    pid = lab4.status()[1].pid
    freeze(pid)
    inside(lab4).cluster.deaths[2] = -signal.SIGKILL
    said = []
    expected = [
        "idle",
        "no answer (its process is stopped: SIGSTOP or a debugger)",
        "dead: signal 9 (SIGKILL)",
        "idle",
    ]

    def told():
        said[:] = [s.describe() for s in list_states(inside(lab4).cluster)]
        return said == expected

    try:
        until(told, instead=lambda: said)
    finally:
        os.kill(pid, signal.SIGCONT)
        del inside(lab4).cluster.deaths[2]
