"""What every rank does now, asked once."""

from __future__ import annotations

import os
import signal
import time

from labkit.runtime import control, request
from labkit.runtime.survey import look, survey
from tests.conftest import freeze


def run(lab, code):
    return request.cell(lab._group, [0, 1, 2, 3], f"#px In[7]\n{code}\n")


def test_who_waits_is_told_with_what_and_where(lab4):
    pending = run(lab4, "import time\nif rank == 3:\n    time.sleep(1.5)\ndist.barrier()")
    time.sleep(0.5)
    states = survey(lab4._cluster)
    pending.wait()
    assert [s.state for s in states] == ["waiting"] * 3 + ["running"]
    assert states[0].detail.startswith("barrier (collective ")
    assert (states[0].where, states[0].line) == ("In[7], line 5", "dist.barrier()")
    assert states[3].where == "In[7], line 4"


def test_a_function_of_the_notebook_is_named(lab4):
    code = compile(
        "def train():\n    import time\n    time.sleep(1)\n", "/tmp/ipykernel_1/2.py", "exec"
    )
    names = {}
    exec(code, names)
    import cloudpickle

    from labkit.runtime.cluster import on_rank

    payload = cloudpickle.dumps((names["train"], (), {}))
    send = lambda view: view.apply_async(on_rank, "calls.call", payload)  # noqa: E731
    pending = request.Pending(lab4._group, [0], send)
    time.sleep(0.4)
    state = look(lab4._cluster)[0]
    pending.wait()
    assert state.describe() == "running train, line 3"


def test_a_function_of_an_earlier_cell_is_shown_with_the_line_that_calls_it(lab4):
    request.cell(lab4._group, [0], "#px In[2]\ndef f():\n    import time; time.sleep(1)").wait()
    pending = request.cell(lab4._group, [0], "#px In[3]\nf()")
    time.sleep(0.4)
    state = look(lab4._cluster)[0]
    pending.wait()
    assert state.where == "In[3], line 2 → In[2], line 3"
    assert state.line == "import time; time.sleep(1)"


def test_memory_is_what_a_rank_has_for_itself(lab4):
    before = look(lab4._cluster)
    assert all(s.gpu is None and 2**20 < s.memory < 200 * 2**20 for s in before)
    request.cell(lab4._group, [2], "big = bytearray(b'x') * (64 * 2**20)").wait()
    after = look(lab4._cluster)
    grown = [b.memory - a.memory for a, b in zip(before, after, strict=True)]
    assert grown[2] > 60 * 2**20
    assert max(grown[:2] + grown[3:]) < 8 * 2**20


def test_memory_between_exact_looks_is_as_exact(lab4):
    def both():
        import time

        import psutil

        from labkit.rank import memory

        memory.read()
        held = [bytearray(b"x") * (64 * 2**20)]
        looked = memory._exact.when
        estimate = memory.read()["memory"]
        assert memory._exact.when == looked > time.monotonic() - memory.EXACT_SECONDS
        return estimate, psutil.Process().memory_full_info().uss, len(held)

    for estimate, exact, _ in lab4.run(both):
        assert abs(estimate - exact) < 16 * 2**20  # pages that it has copied since count too


def test_who_is_stopped_or_dead_is_told(lab4):
    pid = lab4.status()[1].pid
    freeze(pid)
    lab4._cluster.deaths[2] = "signal 9 (SIGKILL)"
    try:
        began = time.monotonic()
        said = [s.describe() for s in look(lab4._cluster)]
        assert time.monotonic() - began < control.ANSWER_SECONDS + 0.5
    finally:
        os.kill(pid, signal.SIGCONT)
        del lab4._cluster.deaths[2]
    assert said == [
        "idle",
        "no answer (its process is stopped: SIGSTOP or a debugger)",
        "dead: signal 9 (SIGKILL)",
        "idle",
    ]
