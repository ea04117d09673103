"""What every rank does now, asked once."""

from __future__ import annotations

import os
import signal
import time

from labkit.runtime import control, request
from labkit.runtime.survey import find_fault, look, survey
from tests.conftest import freeze
from tests.support.cells import finish_cell, inside, run_cell, send_cell


def run(lab, code):
    return send_cell(lab, f"#px In[7]\n{code}\n")


def test_who_waits_is_told_with_what_and_where(lab4):
    sent = run(lab4, "import time\nif rank == 3:\n    time.sleep(1.5)\ndist.barrier()")
    time.sleep(0.5)
    states = survey(inside(lab4).cluster)
    finish_cell(sent)
    assert [s.state for s in states] == ["waiting"] * 3 + ["running"]
    assert states[0].detail.startswith("barrier (collective ")
    assert (states[0].where, states[0].line) == ("In[7], line 5", "dist.barrier()")
    assert states[3].where == "In[7], line 4"


def test_who_waits_in_vain_is_told(lab4):
    cluster = inside(lab4).cluster
    sent = run(lab4, "if rank != 3:\n    dist.barrier()")
    time.sleep(0.5)
    told = find_fault(cluster, survey(cluster))
    finish_cell(sent)
    assert told == ["Deadlock: ranks 0–2 wait for rank 3, which has ended its cell."]
    sent = send_cell(lab4, "dist.barrier()", [0])
    time.sleep(0.5)
    told = find_fault(cluster, survey(cluster))
    finish_cell(sent)
    assert told == ["Deadlock: rank 0 waits for ranks 1–3, which were not asked to run the cell."]


def test_of_those_who_wait_for_a_slow_one_nothing_is_told(lab4):
    cluster = inside(lab4).cluster
    sent = run(lab4, "import time\nif rank == 3:\n    time.sleep(3)\ndist.barrier()")
    time.sleep(0.5)
    states = survey(cluster)
    assert [s.state for s in states] == ["waiting"] * 3 + ["running"]
    assert find_fault(cluster, states) == []
    finish_cell(sent)
    assert find_fault(cluster, survey(cluster)) == []


def test_a_function_of_the_notebook_is_named(lab4):
    code = compile(
        "def train():\n    import time\n    time.sleep(1)\n", "/tmp/ipykernel_1/2.py", "exec"
    )
    names = {}
    exec(code, names)
    import cloudpickle

    payload = cloudpickle.dumps((names["train"], (), {}))
    sent = request.call(inside(lab4).group, [0], payload)
    time.sleep(0.4)
    state = look(inside(lab4).cluster)[0]
    finish_cell(sent)
    assert state.describe() == "running train, line 3"


def test_a_function_of_an_earlier_cell_is_shown_with_the_line_that_calls_it(lab4):
    run_cell(lab4, "#px In[2]\ndef f():\n    import time; time.sleep(1)", [0])
    sent = send_cell(lab4, "#px In[3]\nf()", [0])
    time.sleep(0.4)
    state = look(inside(lab4).cluster)[0]
    finish_cell(sent)
    assert state.where == "In[3], line 2 → In[2], line 3"
    assert state.line == "import time; time.sleep(1)"


def test_memory_is_what_a_rank_has_for_itself(lab4):
    before = look(inside(lab4).cluster)
    assert all(s.gpu is None and 2**20 < s.memory < 200 * 2**20 for s in before)
    run_cell(lab4, "big = bytearray(b'x') * (64 * 2**20)", [2])
    after = look(inside(lab4).cluster)
    grown = [b.memory - a.memory for a, b in zip(before, after, strict=True)]
    assert grown[2] > 60 * 2**20
    assert max(grown[:2] + grown[3:]) < 8 * 2**20


def test_memory_between_exact_looks_is_as_exact(lab4):
    def both():
        import time

        import psutil

        from labkit.rank import memory

        memory.used()
        held = [bytearray(b"x") * (64 * 2**20)]
        looked = memory._exact.when
        estimate = memory.used()
        assert memory._exact.when == looked > time.monotonic() - memory.EXACT_SECONDS
        return estimate, psutil.Process().memory_full_info().uss, len(held)

    for estimate, exact, _ in lab4.run(both):
        assert abs(estimate - exact) < 16 * 2**20  # pages that it has copied since count too


def test_who_is_stopped_or_dead_is_told(lab4):
    pid = lab4.status()[1].pid
    freeze(pid)
    inside(lab4).cluster.deaths[2] = -signal.SIGKILL
    try:
        began = time.monotonic()
        said = [s.describe() for s in look(inside(lab4).cluster)]
        assert time.monotonic() - began < control.ANSWER_SECONDS + 0.5
    finally:
        os.kill(pid, signal.SIGCONT)
        del inside(lab4).cluster.deaths[2]
    assert said == [
        "idle",
        "no answer (its process is stopped: SIGSTOP or a debugger)",
        "dead: signal 9 (SIGKILL)",
        "idle",
    ]
