"""What a cell on a rank asks the user: ``input()``, ``breakpoint()``, ``%debug``."""

from __future__ import annotations

import builtins
import getpass
import os
import re
import signal
import sys
import time
from types import SimpleNamespace

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import labkit
from labkit import Interrupted, RankDied, RankError
from labkit.course.catalogue import find
from labkit.runtime import control
from labkit.wire.requests import GiveInput
from tests.support.cells import inside, restored
from tests.support.events import HANG_SECONDS, PATIENT, busy_with, press_stop, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("alarmed")]

SUM = "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()"
ONE_STOPS = "x = torch.ones(1)\nif rank == 2:\n    breakpoint()\ndist.all_reduce(x)\nx.item()"


class Person:
    """Takes the place of ``input`` and ``getpass`` in the notebook; answers what it was told to."""

    def __init__(self):
        self.answers: list[object] = []
        self.asked: list[str] = []
        self.shown: list[str] = []  #: what had been printed when it was asked

    def input(self, prompt=""):
        self.asked.append(prompt)
        self.shown.append(self.capsys.readouterr().out)
        answer = self.answers.pop(0)
        answer = answer() if callable(answer) else answer
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def person(monkeypatch, capsys):
    """The user at a terminal."""
    made = Person()
    made.capsys = capsys
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(builtins, "input", made.input)
    monkeypatch.setattr(getpass, "getpass", made.input)
    return made


@pytest.fixture
def lab(shell, lab4):
    return restored(lab4)


@pytest.fixture
def px(shell, lab, capsys):
    """Run a ``%%px`` cell; return what it leaves, without colours."""

    def run(code, line=""):
        capsys.readouterr()
        shell.run_cell_magic("px", line, code)
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)

    return run


def prompts(person):
    """Return the ranks that were asked, in order."""
    return [int(re.match(r"rank (\d+): ", prompt)[1]) for prompt in person.asked]


def press():
    """Press the stop button instead of an answer."""
    press_stop()
    time.sleep(HANG_SECONDS)


# -- input() -----------------------------------------------------------------------------------


def test_each_rank_is_asked_in_turn(px, person):
    person.answers = ["a", "b", "c", "d"]
    out = px("print('before')\nname = input('Name? ')\nprint('I am', name)")
    assert person.asked == [f"rank {r}: Name? " for r in range(4)]
    assert [text.strip() for text in person.shown] == ["before"] * 4
    for rank, name in enumerate("abcd"):
        assert f"rank {rank}:\n  before\n  Name? {name}\n  I am {name}\n" in out


def test_some_ranks_are_asked_and_a_secret_is_not_written_down(px, person):
    person.answers = ["geheim"] * 2
    out = px("import getpass\nlen(getpass.getpass('Key: '))", "--ranks 1,3")
    assert person.asked == ["rank 1: Key: ", "rank 3: Key: "]
    assert "ranks 1, 3: 6" in out
    assert "geheim" not in out


def test_the_end_of_the_input_is_an_error_of_that_rank(px, person):
    person.answers = [EOFError()]
    with pytest.raises(RankError, match=r"^rank 2: EOFError$"):
        px("if rank == 2:\n    input()")


def test_a_function_of_lab_run_asks_too(lab, person):
    def ask():
        return int(input("How many? "))

    person.answers = ["1", "2", "3", "4"]
    assert lab.run(ask) == [1, 2, 3, 4]


# -- breakpoint() --------------------------------------------------------------------------------


def test_a_rank_in_the_debugger_is_waited_for(px, lab, person):
    """Values are printed before the next prompt, and waiting for the user is no deadlock."""
    seen = []

    def look_and_go_on():
        until(lambda: busy_with({0: "waiting", 1: "waiting", 3: "waiting"})(lab.status()))
        time.sleep(3.5)  # a wrong verdict would come by then
        table = lab.status()
        seen.extend([*(state.describe() for state in table), *table.notes])
        return "c"

    person.answers = ["p x", look_and_go_on]
    out = px(ONE_STOPS)
    assert person.asked == ["rank 2: ipdb> "] * 2
    assert "----> 4     breakpoint()" in re.sub(r"\x1b\[[0-9;]*m", "", person.shown[0])
    assert person.shown[1] == "tensor([1.])\n"
    assert re.fullmatch(r"asks ipdb> at In\[\d+\], line 4: breakpoint\(\)", seen[2])
    assert "waiting in all_reduce" in seen[0]
    assert len(seen) == 4  # no deadlock is noted
    assert "ipdb> p x\n  tensor([1.])\n  ipdb> c\n" in out
    assert "ranks 0–3: 4.0" in out


def test_ranks_that_step_into_a_collective_wait_for_the_others_at_their_prompts(px, person):
    person.answers = ["n", "n", "n", "n", "n", "n", "n", "n", "c", "c", "c", "c"]
    out = px(f"breakpoint()\n{SUM}")
    # Each steps to line 3, to line 4, and then waits there in all_reduce for the next one.
    assert prompts(person)[:3] == [0, 0, 0]
    assert "ranks 0–3: 4.0" in out


def test_steps_stay_in_the_cell(px, person):
    """``n`` at the end of a statement goes on to the next one, not into what runs the cell."""
    person.answers = ["n", "n", "up", "w", "n", "n"]
    px(
        "def double(a):\n    b = a + a\n    return b\nbreakpoint()\ny = double(3)\nz = y\n",
        "--ranks 0",
    )
    lines = [re.findall(r"-> (\d+) ", re.sub(r"\x1b\[[0-9;]*m", "", t)) for t in person.shown]
    assert lines == [["5"], ["6"], ["7"], [], ["7"]]
    assert "labkit/" not in person.shown[4]
    assert person.answers == ["n"]
    assert px("y = 1", "--ranks 0") == ""  # the next cell is not stepped through
    assert person.answers == ["n"]


def test_the_last_statement_of_a_cell_can_open_the_debugger(px, person):
    person.answers = ["p y", "c"]
    out = px("y = 5\nbreakpoint()", "--ranks 3")
    assert person.asked == ["rank 3: ipdb> "] * 2
    assert "ipdb> p y\n  5\n" in out


def test_leaving_the_debugger_ends_the_cell_there_and_frees_the_others(px, person):
    person.answers = ["q"]
    with pytest.raises(RankError) as raised:
        px(ONE_STOPS)
    said = str(raised.value)
    assert said.startswith("rank 2: DebuggerQuit: the debugger was left with q")
    assert re.search(r"ranks 0–1, 3 waited in In\[\d+\], line 5 for rank 2", said)
    shown = "\n".join(raised.value.blocks)
    assert "bdb.py" not in shown
    assert len(shown.split("\n")) < 14
    assert "ranks 0–3: 4.0" in px(SUM)


def test_the_debugger_of_torch_asks_too(px, person):
    person.answers = ["p 6 * 7", "c"]
    out = px("dist.breakpoint(1)\nrank + 1")
    assert person.asked == ["rank 1: (Pdb) "] * 2
    assert "42" in person.shown[1]
    assert "rank 3: 4" in out


# -- %debug ------------------------------------------------------------------------------------


def test_the_last_error_can_be_looked_at(px, person):
    with pytest.raises(RankError):
        px("def f(a):\n    b = a - 1\n    return 1 / b\nf(rank)")
    person.answers = ["p b", "up", "p rank", "q"]
    out = px("%debug")
    assert prompts(person) == [1, 1, 1, 1]
    assert "ipdb> p b\n  0\n" in out
    assert "ipdb> p rank\n  1\n" in out
    assert px("y = 1") == ""
    px("%debug")  # an error of long ago is kept no longer, nor what its variables hold
    assert person.asked[4:] == []


# -- what comes between ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ONE_STOPS, "input()", "dist.breakpoint(1)"])
def test_the_stop_button_ends_a_question(px, person, lab, code):
    lab["kept"] = 7
    person.answers = [press]
    with pytest.raises(Interrupted):
        px(code)
    assert "ranks 0–3: 4.0" in px(SUM)
    assert lab["kept"] == [7] * 4
    person.answers = ["fresh"]
    assert "'fresh'" in px("input()", "--ranks 1")


def test_after_the_stop_button_the_rest_of_the_cell_does_not_run(px, person, lab):
    lab["reached"] = 0
    person.answers = [press]
    with pytest.raises(Interrupted, match=r"In\[\d+\], line 2|stopped"):
        px("breakpoint()\nreached = 1", "--ranks 2")
    assert lab["reached"] == [0] * 4


def test_an_answer_that_comes_too_late_is_no_answer_to_the_next_question(px, person, lab):
    counts = []

    def late():
        for number in (0, 9999):
            told = control.ask(inside(lab).cluster, {0: GiveInput(number, "late")}, PATIENT)
            counts.append(told[0].count)
        return "right"

    person.answers = [late]
    assert "'right'" in px("input()", "--ranks 0")
    assert counts == [0, 0]


@pytest.mark.parametrize("victim", [2, 3])
def test_a_rank_that_dies_meanwhile_ends_the_cell_once_there_is_an_answer(px, person, lab, victim):
    def kill():
        os.kill(lab.status()[victim].pid, signal.SIGKILL)
        return "p x"

    person.answers = [kill, "c", "c"]
    with pytest.raises(RankDied, match=f"^rank {victim} ended with signal 9"):
        px(ONE_STOPS)
    lab.restart()
    assert "ranks 0–3: 4.0" in px(SUM)


# -- where nobody can answer ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "call"), [("input()", "input()"), ("breakpoint()\nx = 1", "breakpoint()")]
)
def test_where_nobody_can_answer_the_rank_says_so_and_the_others_are_freed(px, code, call):
    with pytest.raises(RankError) as raised:
        px(f"if rank == 1:\n    {code.splitlines()[0]}\ndist.barrier()")
    said = str(raised.value)
    assert said.startswith(f"rank 1: LabError: {call} asks the user, but nobody can answer here:")
    assert "ranks 0, 2–3 waited" in said


def test_a_cell_that_nobody_waits_for_asks_nobody(px, person, shell):
    px("input()", "--noblock --ranks 0 -o later")
    with pytest.raises(Exception, match="the notebook does not wait for it"):
        shell.user_ns["later"].get(timeout=HANG_SECONDS)
    assert person.asked == []


def test_a_check_asks_nobody(px, person, capsys):
    name = find("00-1").answer
    px(f"def {name}():\n    return int(input('Which? '))")
    labkit.check("00-1")
    assert "nobody can answer during a check: leave it out of the answer" in capsys.readouterr().out
    assert person.asked == []
    labkit.hint("00-1")  # takes away what this check has found: tests of a process share that
    assert "int(input('Which? '))" in capsys.readouterr().out


def test_a_thread_a_timer_and_a_forked_process_ask_nobody(px, person):
    code = """import asyncio, os, threading
said = []
def ask():
    try:
        input()
    except Exception as error:
        said.append(str(error))
if (child := os.fork()) == 0:
    try:
        input()
    except Exception:
        os._exit(7)
    os._exit(0)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
thread = threading.Thread(target=ask)
thread.start()
thread.join()
timer = asyncio.get_running_loop().call_later(0.1, ask)"""
    px(code, "--ranks 0")
    until(lambda: "2" in px("len(said)", "--ranks 0"))  # the timer comes between cells
    assert "7" in px("ended", "--ranks 0")
    out = px("said", "--ranks 0")
    assert "only the main thread of a rank can do" in out
    assert "the notebook does not wait for it" in out
    assert person.asked == []


# -- in a notebook -------------------------------------------------------------------------------

CELLS = ("import labkit\nlab = labkit.start(2)", "%%px\nname = input('Name? ')\nname")


def test_a_front_end_with_an_input_box_is_asked():
    manager, client = start_new_kernel(kernel_name="python3")
    asked, shown = [], []

    def answer(message):
        asked.append(message["content"]["prompt"])
        client.input("Ada")

    try:
        for cell in CELLS:
            reply = client.execute_interactive(
                cell,
                timeout=HANG_SECONDS,
                allow_stdin=True,
                stdin_hook=answer,
                output_hook=shown.append,
            )
            assert reply["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert asked == ["rank 0: Name? ", "rank 1: Name? "]
    assert "'Ada'" in str([m["content"] for m in shown])


def test_under_nbclient_the_cell_ends_with_one_sentence():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    with pytest.raises(CellExecutionError, match="this front end takes no input"):
        NotebookClient(notebook, timeout=int(HANG_SECONDS), store_widget_state=False).execute()
    (output,) = notebook.cells[1].outputs
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
    assert "ranks 0–1: LabError: input() asks the user" in text
    assert "StdinNotImplemented" not in text
