"""Tab and Shift-Tab in a ``%%px`` cell: what the ranks know, and nobody waits for a busy one."""

from __future__ import annotations

import os
import signal

import pytest
from jupyter_client.manager import start_new_kernel

from labkit.base import times
from labkit.notebook import names
from labkit.wire import remote_calls
from tests.support.alarm import alarm
from tests.support.cells import finish_cell, inside, send_cell
from tests.support.events import HANG_SECONDS

pytestmark = pytest.mark.slow

CELL = (
    "import labkit\nlab = labkit.start(2)",
    "%%px\nimport torch.distributed as far_away\ncolours = {'red': rank}\nclass Net:\n"
    "    '''Two layers.'''\n    depth = 2\nnet = Net()\nif rank == 1:\n    only_here = 1",
    "here = 1",
)


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        for cell in CELL:
            assert (
                client.execute_interactive(cell, timeout=HANG_SECONDS)["content"]["status"] == "ok"
            )
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def tab(kernel, cell):
    """Press Tab where the cell has a bar; return what is suggested, and what it replaces."""
    cursor = cell.index("|")
    code = cell.replace("|", "")
    kernel.complete(code, cursor)
    found = kernel.get_shell_msg(timeout=HANG_SECONDS)["content"]
    return found["matches"], code[found["cursor_start"] : found["cursor_end"]]


def shift_tab(kernel, cell):
    kernel.inspect(cell.replace("|", ""), cell.index("|"))
    return kernel.get_shell_msg(timeout=HANG_SECONDS)["content"]["data"].get("text/plain", "")


@pytest.mark.parametrize(
    ("cell", "suggested", "replaced"),
    [
        ("%%px\nx = far_aw|", "far_away", "far_aw"),
        ("%%px\nx = 1\nfar_away.all_red|(x)", "all_reduce", "all_red"),
        ("%%px --ranks 1\nonly_h|", "only_here", "only_h"),
        ("%%px\ncolours['r|", "red", "r"),
        ("y = 1\n%px net.dep|", "depth", "dep"),
        ("%%px\nnew_name = 1\nnew_n|", "new_name", "new_n"),
    ],
)
def test_tab_knows_the_names_of_the_ranks(kernel, cell, suggested, replaced):
    matches, old = tab(kernel, cell)
    assert suggested in matches
    assert old == replaced


@pytest.mark.parametrize("cell", ["far_aw|", "%%px\nonly_h|", "%%px --ranks 7\nfar_aw|", "%%px -|"])
def test_tab_suggests_no_name_that_is_not_there(kernel, cell):
    assert not {"far_away", "only_here"} & set(tab(kernel, cell)[0])


def test_tab_and_shift_tab_knew_the_notebook_before_and_do_so_still(kernel):
    assert "here" in tab(kernel, "her|")[0]
    assert "int" in shift_tab(kernel, "here|")
    assert "int" in shift_tab(kernel, "%%px\nhere|")


def test_shift_tab_explains_what_a_rank_has(kernel):
    assert "Two layers." in shift_tab(kernel, "%%px\nNet|()")
    assert "async_op" in shift_tab(kernel, "%%px\nx = far_away.all_reduce|(x)")
    assert "Two layers." not in shift_tab(kernel, "Net|()")
    assert shift_tab(kernel, "%%px\nno_such_name|") == ""


def test_tab_knows_the_ids_of_the_exercises(kernel):
    matches, old = tab(kernel, 'labkit.check("03-|")')
    assert matches[:2] == ["03-1", "03-2"]
    assert old == "03-"
    assert tab(kernel, "from labkit import hint\nhint('00|')")[0][0] == "00-1"
    assert not tab(kernel, 'print("03-|")')[0]


def test_a_question_leaves_no_trace(kernel):
    """The ranks count their cells as before, and ``_`` is what it was."""
    kernel.execute_interactive("%px 41 + 1", timeout=HANG_SECONDS)
    before = history(kernel)
    tab(kernel, "%%px\nfar_aw|")
    shift_tab(kernel, "%%px\nNet|")
    assert history(kernel) == before
    assert before.startswith("([42, 42],")


def history(kernel):
    asked = {"kept": "lab['_'], [len(cells) for cells in lab['In']]"}
    reply = kernel.execute_interactive(
        "", silent=True, timeout=HANG_SECONDS, user_expressions=asked
    )
    return reply["content"]["user_expressions"]["kept"]["data"]["text/plain"]


# -- ranks that cannot answer --------------------------------------------------------------------


def test_a_busy_rank_is_not_asked_and_another_answers(lab4, gate, monkeypatch):
    monkeypatch.setattr(times, "COMPLETION", HANG_SECONDS)
    group = inside(lab4).group
    lab4["x_of_ranks"] = 1
    busy = send_cell(lab4, gate.wait, [0])
    call = remote_calls.complete("x_of_r", 6)
    assert [s.text for s in names.ask_free(group, [0, 1], call)] == ["x_of_ranks"]
    assert names.ask_free(group, [0], call) is None
    assert busy.busy() == [0]
    gate.open()
    finish_cell(busy)


def test_a_stopped_rank_costs_no_more_than_the_patience(lab4, eventually, monkeypatch):
    group = inside(lab4).group
    pid = lab4.run(os.getpid, ranks=[3])[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert names.ask_free(group, [3], remote_calls.complete("torch.on", 8)) is None
        monkeypatch.setattr(times, "COMPLETION", 2 * HANG_SECONDS)
        with alarm(int(HANG_SECONDS)):  # it is busy now, and not asked
            assert names.ask_free(group, [3], remote_calls.explain("torch", 5, 0)) is None
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not inside(lab4).cluster.busy_ranks())
    assert "ones" in [
        s.text for s in names.ask_free(group, [3], remote_calls.complete("torch.on", 8))
    ]
