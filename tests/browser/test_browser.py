"""Cells in JupyterLab in a real browser: what a learner sees when they run, fail, hang or are
stopped.

Each test keeps what its page showed as ``build/browser/NAME.png``. ``test_browser_walk`` goes
through a notebook of the course.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser import chromium, page, server
from tests.support.notebook_rules import ESCAPE
from tests.support.system import needs

pytestmark = [pytest.mark.slow, needs("chromium")]

ALL_REDUCE = "%%px\ny = torch.ones(1)\ndist.all_reduce(y)\ny.item()"
START = "import labkit\n\nlab = labkit.start(4)"
BESIDE = """%%px
import threading, time
end, kept = False, 1
def tick():
    while not end:
        time.sleep(0.1)
if rank == 2:
    threading.Thread(target=tick).start()"""
MEANT = {"tags": ["raises-exception"]}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[page.NotebookPage]:
    """A notebook of the learner's own that has run: four ranks, and an error that is meant."""
    with (
        server.course_server(tmp_path_factory.mktemp("lab")) as running,
        chromium.chromium() as browser,
        chromium.window(browser) as window,
    ):
        broken = nbformat.v4.new_code_cell("%%px\n1 / 0", metadata=MEANT)
        file = running.new_notebook("own.ipynb", START, broken, ALL_REDUCE)
        opened = page.NotebookPage(window, running.address(file.name), file)
        opened.run_all()
        opened.wait_ended(2, 60)
        yield opened
        opened.close()


@pytest.fixture(autouse=True)
def _picture(request: pytest.FixtureRequest, own: page.NotebookPage) -> Iterator[None]:
    """Keep what the page shows at the end of a test, failed ones included."""
    yield
    own.keep(request.node.name.removeprefix("test_"))


def test_run_all_goes_on_after_an_error_that_is_meant(own: page.NotebookPage) -> None:
    assert [own.prompt(at) for at in range(3)] == ["[1]:", "[2]:", "[3]:"]
    assert own.text(0) == ""
    assert "ZeroDivisionError" in own.errors(1)[0]
    assert own.text(2).strip() == "ranks 0–3: 4.0"
    assert own.script_errors == []


def test_an_error_names_its_rank_and_line(own: page.NotebookPage) -> None:
    at = own.run_new("%%px\nvalues = [1, 2, 3]\nif rank == 1:\n    values[7]")
    (error,) = own.errors(at)
    assert error.startswith("rank 1: IndexError: list index out of range")
    assert "line 4" in error
    assert "--> 4 " in " ".join(error.split())
    assert not any(f"rank {other}" in own.text(at) for other in (0, 2, 3))


def test_a_hanging_cell_ends_with_its_reason(own: page.NotebookPage) -> None:
    at = own.run_new("%%px\nx = torch.ones(1)\nif rank != 2:\n    dist.all_reduce(x)")
    (error,) = own.errors(at)
    assert error.startswith("Deadlock: ranks 0–1, 3 wait for rank 2, which has ended its cell.")
    assert "line 4:  dist.all_reduce(x)" in error
    assert "Cause:" in error
    assert own.text(own.run_new(ALL_REDUCE)).strip() == "ranks 0–3: 4.0"


def test_the_stop_button_ends_a_cell(own: page.NotebookPage) -> None:
    at = own.append("%%px\nimport time\nprint('asleep')\ntime.sleep(300)")
    own.start(at)
    own.wait_text(at, "asleep.*rank 3.*running")
    own.interrupt()
    own.wait_ended(at)
    text = own.text(at)
    assert "asleep" in text
    assert "interrupt" in text.lower()
    assert "▶ rank" not in text
    assert "labkit/" not in text
    assert text.count("\n") < 10
    assert own.text(own.run_new(ALL_REDUCE)).strip() == "ranks 0–3: 4.0"


def test_a_debugger_asks_below_what_its_rank_has_printed(own: page.NotebookPage) -> None:
    """Each rank in turn; the page is not cleared from under the input box."""
    at = own.append("%%px\nz = torch.ones(1) * rank\nbreakpoint()\ndist.all_reduce(z)\nz.item()")
    own.start(at)
    for rank in range(4):
        own.answer(f"rank {rank}: ipdb>", "p rank + 70")
        own.wait_text(at, f"rank {rank}:.*-> 3 breakpoint.*rank {rank}:.*p rank.*7{rank}")
        if rank == 2:
            own.keep("a_debugger")
        own.answer(f"rank {rank}: ipdb>", "c")
    own.wait_ended(at)
    text = own.text(at)
    assert "ipdb> p rank + 70\n  73\n  ipdb> c" in text
    assert text.strip().endswith("ranks 0–3: 6.0")
    assert own.page.locator(".jp-Stdin").count() == 0
    at = own.append("%%px\nif rank == 2:\n    input('Name? ')\ndist.barrier()")
    own.start(at)
    own.page.locator(".jp-Stdin", has_text="rank 2: Name?").wait_for()
    own.interrupt()
    own.wait_ended(at)
    assert own.page.locator(".jp-Stdin").count() == 0
    assert own.errors(at)[0].startswith("Interrupted: the cell was stopped.")
    assert own.text(own.run_new(ALL_REDUCE)).strip() == "ranks 0–3: 4.0"


def test_tab_and_shift_tab_know_what_the_ranks_have(own: page.NotebookPage) -> None:
    """The notebook itself has no ``dist``: only the ranks have it."""
    own.write(own.append(""), "%%px\ndist.all_red")
    offered = own.page.locator(".jp-Completer:visible")
    for _ in range(5):  # the first lets IPython import Jedi; JupyterLab waits a second for each
        own.page.keyboard.press("Tab")
        with contextlib.suppress(AssertionError):
            expect(offered).to_have_count(1)
            break
    expect(offered).to_contain_text("all_reduce_coalesced")
    own.keep("tab_in_a_cell_for_ranks")
    own.page.keyboard.press("Enter")
    expect(own.page.locator(".jp-Completer:visible")).to_have_count(0)
    own.page.keyboard.press("Shift+Tab")
    expect(own.page.locator(".jp-Tooltip")).to_contain_text("async_op")
    own.keep("shift_tab_in_a_cell_for_ranks")
    own.page.keyboard.press("Escape")
    assert own.sources()[-1] == "%%px\ndist.all_reduce"


def test_what_is_suspected_is_told_and_ends_at_the_stop_button(own: page.NotebookPage) -> None:
    """A thread of rank 2 could still come: nothing is ended for the learner."""
    own.run_new(BESIDE)
    at = own.append("%%px\nx = torch.ones(1)\nif rank != 2:\n    dist.all_reduce(x)")
    own.start(at)
    own.wait_text(at, "rank 2.*Thread-")
    own.wait_text(at, "[Ss]top")
    own.keep("what_is_suspected")
    assert own.prompt(at) == "[*]:"
    own.interrupt()
    own.wait_ended(at)
    (error,) = own.errors(at)
    assert error.startswith("Interrupted: the cell was stopped.")
    assert "rank 2" in error
    assert own.text(own.run_new("%%px\nend = True\nkept")).strip() == "ranks 0–3: 1"
    assert own.text(own.run_new(ALL_REDUCE)).strip() == "ranks 0–3: 4.0"


def test_output_is_live_and_then_settled(own: page.NotebookPage, tmp_path: Path) -> None:
    """Lines and the board of ranks come while the cell runs; at the end both make room."""
    go = tmp_path / "go"
    code = f"""%%px
import time
from pathlib import Path
for step in (1, 2):
    print("step", step, "of rank", rank)
while not Path({str(go)!r}).exists():
    time.sleep(0.05)
print("the end")"""
    at = own.append(code)
    own.start(at)
    own.wait_text(at, "step 1 of rank 0.*step 2 of rank 3")
    own.wait_text(at, "rank 0.*running.*rank 3.*running")
    assert own.prompt(at) == "[*]:"
    go.touch()
    own.wait_ended(at)
    lines = "  step 1 of rank {0}\n  step 2 of rank {0}\n  the end\n"
    settled = "".join(f"rank {rank}:\n{lines.format(rank)}" for rank in range(4))
    assert own.text(at) == settled
    (output,) = own.save().cells[at].outputs
    assert output.output_type == "stream"
    assert ESCAPE.sub("", output.text) == settled


def test_own_cells_look_the_same_after_a_reload(own: page.NotebookPage) -> None:
    own.save()
    before = own.view()
    own.reload()
    assert own.view() == before


def test_a_watched_list_is_drawn_below_the_board(own: page.NotebookPage, tmp_path: Path) -> None:
    own.run_new('lab.watch("losses")')
    gate = tmp_path / "gate"
    at = own.append(
        "%%px\nimport pathlib, time\nlosses = [1 / (i + 1 + rank) for i in range(30)]\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.05)"
    )
    own.start(at)
    own.wait_text(at, "rank 3running.*losses rank 0 0.03333.*rank 3")
    own.keep("watched_while_it_runs")
    assert own.cell(at).locator("svg[role=img]").count() == 1
    gate.touch()
    own.wait_ended(at)
    assert (own.pictures(at), own.broken_pictures(), own.script_errors) == (1, [], [])
    assert own.text(at).strip() == ""
    own.run_new("lab.watch()")
