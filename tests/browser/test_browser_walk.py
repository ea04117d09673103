"""The way of a new learner in a real browser: from ``make lab`` to the end of notebook 00.

What the page showed on the way is kept as ``build/browser/walk_*.png``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import nbformat
import pytest

from labkit.course import edition, material
from labkit.tools import jupyterlab
from tests.browser import chromium, page, server
from tests.support.events import until
from tests.support.notebook_rules import stores_no_widget_or_script
from tests.support.system import needs

pytestmark = [pytest.mark.slow, needs("chromium")]

NAME = "00_start_here.ipynb"
YOUR_TURN = "# Your turn: about"
#: At this exercise the learner asks for a hint and gives a wrong answer.
ASKED, WRONG = "00-3", "%%px\ndef neighbour():\n    return rank + 1"
#: What a learner has to see, by the beginning of the cell's code.
EXPECTED = {
    "%%px\nfor p in model.parameters()": ["ranks 0–1: tensor([[ 0.3865,  1.8786, -1.4344]])"],
    "%%px\nif rank == 0": ["Deadlock: rank 0 waits for rank 1", "dist.all_reduce(p.grad)"],
    '%%px --ranks 0,2-3\nprint(f"I am rank': [f"rank {r}: I am rank {r} of 4" for r in (0, 2, 3)],
    "%%px\nx * factor": [f"rank {r}: tensor([{10 * (r + 1)}.])" for r in range(4)],
    "%%px\nshare = 100": ["rank 2: ZeroDivisionError: division by zero", "average = 60"],
    "%%torchrun --standalone": ["ranks 0–1: weight: tensor([["],
}

#: What labkit writes below an error, by the cell that raises it.
HINTS = {"x": ["x is a name of the ranks: begin the cell with %%px.\n"]}

#: What the check of an exercise said to each answer, and the hint: step -> text.
Steps = dict[str, str]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.CourseServer]:
    """What ``make lab`` starts; nothing of it is left afterwards."""
    command, variables = server.make_lab()
    folder = tmp_path_factory.mktemp("lab")
    with server.course_server(folder, command=command, variables=variables) as running:
        yield running


@pytest.fixture(scope="module")
def notebook(lab: server.CourseServer) -> Iterator[page.NotebookPage]:
    """The page that it opens in the learner's browser; the browser ends before the server."""
    until(lambda: lab.opened, instead=lambda: "no browser was told to open a page")
    with chromium.chromium() as browser, chromium.window(browser) as window:
        opened = page.NotebookPage(window, lab.opened, lab.notebook(NAME))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def steps(notebook: page.NotebookPage) -> dict[str, Steps]:
    """Go through the notebook from top to bottom, solve its exercises, and save it."""
    taken = walk(notebook)
    notebook.save()
    return taken


def walk(notebook: page.NotebookPage) -> dict[str, Steps]:
    """Run cell after cell with Shift+Enter; return the steps of each exercise."""
    solutions = {name: edition.solved(source) for name, source in definitions()}
    taken: dict[str, Steps] = {}
    answer = -1
    notebook.choose(0)
    while notebook.chosen() + 1 < len(sources := notebook.sources()):
        at = notebook.step()
        if YOUR_TURN in sources[at]:
            answer = at
        elif match := edition.CHECK.search(sources[at]):
            taken[match[1]] = solve(notebook, answer, at, match[1], solutions[match[1]])
    notebook.run(notebook.chosen())  # Shift+Enter would add a cell below the last one
    return taken


def solve(notebook: page.NotebookPage, answer: int, check: int, name: str, solution: str) -> Steps:
    """Solve an exercise whose stub has been checked; choose the cell below."""
    taken: Steps = {}
    below = check + 1

    def take(step: str, text: str) -> None:
        taken[step] = text
        if name == ASKED:
            notebook.show(answer, chosen=check)
            notebook.keep(f"walk_{len(taken)}_{step}")

    def give(code: str) -> str:
        notebook.write(answer, code)
        notebook.run(answer)
        return notebook.run(check)

    take("stub", notebook.text(check))
    if name == ASKED:
        asking = notebook.insert_below(check, "labkit.hint()")
        take("hint", notebook.run(asking))
        take("wrong", give(WRONG))
        below = asking + 1
    take("right", give(solution))
    notebook.choose(below)
    return taken


def definitions() -> list[tuple[str, str]]:
    """Return (exercise, source of the cell that solves it) from the course's own notebook."""
    return list(
        edition.definitions(nbformat.read(material.root() / "notebooks" / NAME, as_version=4))
    )


# -- the first look -----------------------------------------------------------------------------


def test_make_lab_opens_notebook_00(lab: server.CourseServer, notebook: page.NotebookPage) -> None:
    assert re.search("^Course in work: ", lab.said, re.MULTILINE), lab.said
    assert urlsplit(notebook.page.url).path == f"/lab/tree/{jupyterlab.FIRST_PAGE}"
    notebook.keep("walk_0_opened")


def test_the_solutions_are_taken_out(notebook: page.NotebookPage) -> None:
    sources = notebook.sources()
    assert sum(YOUR_TURN in source for source in sources) == len(definitions())
    assert not any("SOLUTION" in source for source in sources)


# -- exercises ----------------------------------------------------------------------------------


def test_an_exercise_fails_then_a_hint_then_it_passes(steps: dict[str, Steps]) -> None:
    taken = steps[ASKED]
    assert list(taken) == ["stub", "hint", "wrong", "right"]
    assert "✗" not in taken["stub"]  # nothing was tried
    said = " ".join(taken["stub"].split())
    assert "`neighbour` is still empty: write it in the cell of exercise 00-3" in said
    assert "labkit.hint() gives a hint." in taken["stub"]
    assert taken["hint"].startswith(f"Hint 1 of 3 for {ASKED}: Each rank knows its own number")
    assert "rank 3  4      0         ✗" in taken["wrong"]
    sentence = "The last rank names a rank that does not exist: after the last one comes rank 0."
    assert sentence in " ".join(taken["wrong"].split())
    assert "rank 3  0      0         ✓" in taken["right"]


def test_every_exercise_fails_on_its_stub_and_then_passes(steps: dict[str, Steps]) -> None:
    assert list(steps) == [name for name, _ in definitions()]
    for name, taken in steps.items():
        assert f"{name} not yet." in taken["stub"]
        assert "passed" not in taken["stub"]
        # the first check of a session that tries an answer adds how far one is
        assert f"{name} passed." in taken["right"].splitlines()
        assert "✗" not in taken["right"]


# -- the notebook at the end --------------------------------------------------------------------


@pytest.mark.usefixtures("steps")
def test_every_cell_has_run_without_surprise(notebook: page.NotebookPage) -> None:
    stored = notebook.stored()
    for at in notebook.code_cells():
        cell = stored.cells[at]
        meant = "raises-exception" in cell.metadata.get("tags", [])
        assert cell.execution_count is not None, cell.source
        assert len(notebook.errors(at)) == (1 if meant else 0), notebook.text(at)
        assert notebook.stderr(at) == HINTS.get(cell.source, [])
        assert "✗" not in notebook.text(at)
    assert notebook.script_errors == []


@pytest.mark.usefixtures("steps")
def test_it_shows_what_the_course_says(notebook: page.NotebookPage) -> None:
    sources = notebook.sources()
    for start, lines in EXPECTED.items():
        (at,) = [at for at, source in enumerate(sources) if source.startswith(start)]
        for line in lines:
            assert line in notebook.text(at)


@pytest.mark.usefixtures("steps")
def test_it_has_all_its_pictures(notebook: page.NotebookPage) -> None:
    """Those that cells draw, with their alt text, and those of the text."""
    stored = notebook.stored()
    for at in notebook.code_cells():
        drawn = [out for out in stored.cells[at].outputs if "image/png" in out.get("data", {})]
        assert notebook.pictures(at) == len(drawn)
        told = [out.metadata["image/png"]["alt"] for out in drawn]
        assert notebook.alt_texts(at) == told
    assert notebook.broken_pictures() == []


@pytest.mark.usefixtures("steps")
def test_it_is_stored_plain(notebook: page.NotebookPage) -> None:
    """Whatever came and went while cells ran, nothing of it is in the file."""
    stored = notebook.stored()
    assert stores_no_widget_or_script(stored, notebook.file) == []
    assert "widgets" not in stored.metadata
    for cell in stored.cells:
        for output in cell.get("outputs", []):
            assert "running" not in output.get("text", "")
            assert "the ranks are running" not in str(output.get("data", ""))


@pytest.mark.usefixtures("steps")
def test_it_looks_the_same_after_a_reload(notebook: page.NotebookPage) -> None:
    before = notebook.view()
    notebook.reload()
    assert notebook.view() == before


@pytest.mark.usefixtures("steps")
def test_its_ranks_have_gone(lab: server.CourseServer, eventually: Callable[..., None]) -> None:
    """What goes on until the learner ends JupyterLab: the server, its zygote and the kernel."""

    def modules() -> list[str]:
        commands = [process.cmdline() for process in lab.family()]
        return sorted(command[command.index("-m") + 1] for command in commands)

    # The zygote of a whole run of the tests serves this server too: it has none of its own then.
    alone = ["ipykernel_launcher", "jupyterlab"]
    eventually(lambda: modules() in (alone, [*alone, "labkit.launch.zygote"]), instead=modules)
