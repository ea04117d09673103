"""The course in JupyterLab in a real browser: what a learner sees and does.

Each test saves what its page showed as ``build/browser/NAME.png``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.browser import chromium, page, server
from tests.conda_versions import ROOT
from tests.conftest import descendants
from tests.notebook_rules import ESCAPE, stores_no_widget_or_script
from tests.system import needs

pytestmark = [pytest.mark.slow, needs("chromium")]

PICTURES = ROOT / "build" / "browser"
#: Of notebook 00: what a learner has to see, by the beginning of the cell's code.
EXPECTED = {
    'print("ranks:"': ["ranks: [0, 1, 2, 3]", "four different processes: True", "all idle: True"],
    '%%px\nprint(f"I am rank': [f"rank {r}: I am rank {r} of 4" for r in range(4)],
    '%%px\nprint("the world size': ["ranks 0–3: the world size is 4"],
    "%%px\nbefore = x.clone()": ["ranks 0–3: tensor([10.])"],
    "%%px\nshare = 100": ["rank 2: ZeroDivisionError: division by zero", "average = 60"],
    "%%px\nif rank != 2": ["Deadlock: ranks 0–1, 3 wait for rank 2", "dist.all_reduce(x)"],
    "%%px --ranks 0-1\npeer": ["Deadlock: ranks 0–1 wait for one another"],
    'lab.restart()\nprint("world': ["world size: 4"],
    '%%px\nprint("x is gone': ["ranks 0–3: x is gone: True"],
}
ALL_REDUCE = "%%px\ny = torch.ones(1)\ndist.all_reduce(y)\ny.item()"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.CourseServer]:
    """A JupyterLab for the tests of this file, of which nothing is left afterwards."""
    with server.course_server(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="module")
def window(lab: server.CourseServer) -> Iterator[chromium.BrowserContext]:
    """A browser window for the tests of this file; the browser ends before the server."""
    with chromium.chromium() as browser, chromium.window(browser) as opened:
        yield opened
        processes = [p for p in descendants() if p not in lab.family()]
    _, alive = psutil.wait_procs(processes, 10)
    assert not alive, f"left after the browser has ended: {alive}"


@pytest.fixture(scope="module")
def start_here(
    lab: server.CourseServer, window: chromium.BrowserContext
) -> Iterator[page.NotebookPage]:
    """Notebook 00 as ``labkit lab`` opens it, run from top to bottom and saved."""
    opened = page.NotebookPage(window, lab.url, lab.notebook("00_start_here.ipynb"))
    opened.run_all()
    opened.wait_ended(opened.code_cells()[-1], 120)
    opened.save()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def own(lab: server.CourseServer, window: chromium.BrowserContext) -> Iterator[page.NotebookPage]:
    """A notebook of the learner's own, with four ranks."""
    file = lab.new_notebook("own.ipynb", "import labkit\n\nlab = labkit.start(4)")
    opened = page.NotebookPage(window, lab.address(file.name), file)
    assert opened.run(0) == ""
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _picture(request: pytest.FixtureRequest) -> Iterator[None]:
    """Save what the page shows at the end of a test, failed ones included."""
    yield
    PICTURES.mkdir(parents=True, exist_ok=True)
    for value in request.node.funcargs.values():
        if isinstance(value, page.NotebookPage):
            path = PICTURES / f"{request.node.name.removeprefix('test_')}.png"
            path.write_bytes(value.picture())


# -- notebook 00 --------------------------------------------------------------------------------


def test_notebook_00_runs_from_top_to_bottom(start_here: page.NotebookPage) -> None:
    cells = start_here.code_cells()
    assert [start_here.prompt(at) for at in cells] == [f"[{n}]:" for n in range(1, len(cells) + 1)]
    assert start_here.script_errors == []


def test_notebook_00_shows_what_the_course_says(
    start_here: page.NotebookPage, lab: server.CourseServer
) -> None:
    stored = start_here.stored()
    for at in start_here.code_cells():
        cell = stored.cells[at]
        meant = "raises-exception" in cell.metadata.get("tags", [])
        assert len(start_here.errors(at)) == (1 if meant else 0), start_here.text(at)
        assert start_here.stderr(at) == []
        start = next((s for s in EXPECTED if cell.source.startswith(s)), None)
        text = start_here.text(at)
        for line in EXPECTED.get(start, []) if start else []:
            assert line in text
    starts = [s for s in EXPECTED if any(c.source.startswith(s) for c in stored.cells)]
    assert starts == list(EXPECTED)


def test_notebook_00_has_all_its_pictures(start_here: page.NotebookPage) -> None:
    """Those that cells draw, and those of the text."""
    stored = start_here.stored()
    for at in start_here.code_cells():
        drawn = [out for out in stored.cells[at].outputs if "image/png" in out.get("data", {})]
        assert start_here.pictures(at) == len(drawn)
    assert start_here.broken_pictures() == []


def test_notebook_00_is_stored_plain(start_here: page.NotebookPage) -> None:
    """Whatever came and went while cells ran, nothing of it is in the file."""
    stored = start_here.stored()
    assert stores_no_widget_or_script(stored, start_here.file) == []
    assert "widgets" not in stored.metadata
    for cell in stored.cells:
        for output in cell.get("outputs", []):
            assert "running" not in output.get("text", "")
            assert "the ranks are running" not in str(output.get("data", ""))


def test_notebook_00_looks_the_same_after_a_reload(start_here: page.NotebookPage) -> None:
    before = start_here.view()
    start_here.reload()
    assert start_here.view() == before


# -- cells of the learner's own -----------------------------------------------------------------


def test_an_error_names_its_rank_and_line(own: page.NotebookPage) -> None:
    at = own.run_new("%%px\nvalues = [1, 2, 3]\nif rank == 1:\n    values[7]")
    (error,) = own.errors(at)
    assert error.startswith("rank 1: IndexError: list index out of range")
    assert "line 4" in error
    assert "--> 4 " in " ".join(error.split())
    assert not any(f"rank {other}" in own.text(at) for other in (0, 2, 3))


def test_a_hanging_cell_ends_with_its_reason(own: page.NotebookPage) -> None:
    at = own.run_new("%%px\nx = torch.ones(1)\nif rank != 2:\n    dist.all_reduce(x)", 15)
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
    own.wait_ended(at, 10)
    text = own.text(at)
    assert "asleep" in text
    assert "interrupt" in text.lower()
    assert "▶ rank" not in text
    assert own.text(own.run_new(ALL_REDUCE)).strip() == "ranks 0–3: 4.0"


def test_a_stopped_cell_shows_none_of_our_own_code(own: page.NotebookPage) -> None:
    at = own.append("%%px\nimport time\ntime.sleep(300)")
    own.start(at)
    own.wait_text(at, "rank 3.*running")
    own.interrupt()
    own.wait_ended(at, 10)
    assert "labkit/" not in own.text(at)
    assert own.text(at).count("\n") < 10


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
    own.wait_text(at, "step 1 of rank 0.*step 2 of rank 3", 10)
    own.wait_text(at, "rank 0.*running.*rank 3.*running", 10)
    assert own.prompt(at) == "[*]:"
    go.touch()
    own.wait_ended(at, 10)
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
