"""What threads of ranks print after their cell has ended is shown with the next cell."""

from __future__ import annotations

import re

import pytest

from labkit.notebook.run import run
from tests.support.cells import finish_cell, run_cell, send_cell
from tests.support.events import until

NOTE = "(came after an earlier cell had ended)"


@pytest.fixture
def px(lab4, capsys):
    """Run a cell and return what is shown of it, without colours."""

    def show(code, ranks=(0, 1, 2, 3)):
        capsys.readouterr()
        run(send_cell(lab4, code, ranks))
        return shown(capsys)

    return show


def shown(capsys):
    return tuple(re.sub(r"\x1b\[[0-9;]*m", "", text) for text in capsys.readouterr())


def start_thread(lab, gate, line, ranks=None):
    """Let a thread of each rank run a line when the gate opens: its cell has ended by then."""
    code = f"import sys, threading\ndef late():\n    {gate.wait}\n    {line}\n"
    run_cell(lab, code + "threading.Thread(target=late, daemon=True).start()", ranks)


def arrive(lab, gate, *texts):
    """Open the gate, and wait until texts have come, which no other test prints."""
    gate.open()
    told = lab.client.metadata

    def have_come():
        return all(str(list(told.values())).count(text) == lab.world_size for text in texts)

    until(have_come, instead=lambda: told)


def test_it_is_shown_once_though_the_next_cell_is_on_other_ranks(lab4, gate, px):
    start_thread(lab4, gate, "print('late', rank // 2)")
    arrive(lab4, gate, "late")
    assert px("print('mine')", [3])[0] == (
        f"ranks 0–1 {NOTE}: late 0\nranks 2–3 {NOTE}: late 1\nrank 3: mine\n"
    )
    assert px("print('mine')", [3])[0] == "rank 3: mine\n"


def test_it_is_shown_at_a_call_and_stderr_is_apart(lab4, gate, capsys):
    start_thread(lab4, gate, "print('called'); print('a\\nb', file=sys.stderr)")
    arrive(lab4, gate, "called", "a\\nb")
    capsys.readouterr()
    assert lab4.run(lambda: 3, ranks=[1]) == [3]
    assert shown(capsys) == (f"ranks 0–3 {NOTE}: called\n", f"ranks 0–3 {NOTE}:\n  a\n  b\n")


def test_it_is_shown_after_a_deadlock(lab4, gate, px):
    start_thread(lab4, gate, "print('freed')")
    ended = finish_cell(send_cell(lab4, "if rank: dist.barrier()"), suspect=0.1)
    assert ended.error is not None
    arrive(lab4, gate, "freed")
    assert px("1 + 1")[0] == f"ranks 0–3 {NOTE}: freed\nranks 0–3: 2\n"


def test_it_is_shown_where_the_next_cell_fails(lab4, gate, px, capsys):
    start_thread(lab4, gate, "print('failed')")
    arrive(lab4, gate, "failed")
    with pytest.raises(Exception, match="ranks 0–3: ValueError: no"):
        px("raise ValueError('no')")
    assert shown(capsys)[0] == f"ranks 0–3 {NOTE}: failed\n"


class Prints:
    """Print something on the rank that loads it."""

    def __reduce__(self):
        return print, ("during",)


def test_what_is_written_while_labkit_asks_a_rank_is_late_too(lab4, px):
    """It is labelled with the request that the rank has got last: one that shows nothing."""
    lab4["x"] = Prints()
    assert px("print(x)")[0] == f"ranks 0–3 {NOTE}: during\nranks 0–3: None\n"
