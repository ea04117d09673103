"""Which cells of a learner's notebook run, and after which an answer is tried."""

from __future__ import annotations

import nbformat
import pytest

from labkit.teaching import plan

START = "import labkit\nlab = labkit.start(4)"
ANSWER = "%%px\ndef neighbour():\n    return rank"
CHECK = 'labkit.check("00-1")'
LAST = "lab.stop()"


def steps(*sources: str, tags: dict[int, list[str]] | None = None) -> list[str]:
    """Return what a run does: numbers of cells, and ids of exercises."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for number, own in (tags or {}).items():
        cells[number - 1].metadata.tags = own
    cells.insert(0, nbformat.v4.new_markdown_cell("text"))
    found = plan.plan(cells, {"00-1": "neighbour"})
    return [step.ask or step.place.removeprefix("cell ") for step in found]


def test_an_answer_is_tried_where_it_is_defined_and_where_it_is_checked() -> None:
    assert steps(START, ANSWER, CHECK, LAST) == ["1", "2", "00-1", "00-1", "4"]


def test_the_cells_that_check_are_not_needed() -> None:
    assert steps(START, ANSWER, LAST) == ["1", "2", "00-1", "3"]
    assert steps(START, LAST) == ["1", "2", "00-1"]


def test_the_last_definition_counts() -> None:
    assert steps(ANSWER, CHECK, ANSWER) == ["1", "00-1", "3", "00-1"]


def test_cells_that_nothing_depends_on_do_not_run() -> None:
    assert steps(START, "%%torchrun --standalone\nprint(1)", ANSWER, CHECK) == [
        "1", "3", "00-1", "00-1",
    ]  # fmt: skip
    assert steps(START, ANSWER, tags={1: ["costly"], 2: ["costly"]}) == ["2", "00-1"]


@pytest.mark.parametrize(
    "cell",
    [
        CHECK,
        "labkit.hint()",
        'labkit.solution("00-1", define=True)',
        "labkit.check.all()",
        'labkit.check("00-1").passed\nlabkit.progress()',
    ],
)
def test_a_cell_may_only_ask_labkit(cell: str) -> None:
    assert plan.only_asks(cell)


@pytest.mark.parametrize(
    "cell", ["", "x = 1", f"{CHECK}\nx = 1", "labkit.start(2)", "(", "check(1)"]
)
def test_other_cells_do_more(cell: str) -> None:
    assert not plan.only_asks(cell)


def test_names_are_found_below_magics_and_in_broken_cells() -> None:
    assert plan.defined("%%px --ranks 0\n!ls\na, (b, *c) = 1, (2, 3)\nclass D: pass") == {*"abcD"}
    assert plan.defined("%%writefile my_train.py\nx = 1") == {"my_train.py"}
    assert plan.defined("neighbour = lambda: (") == set()


def test_an_exercise_is_tried_on_as_many_ranks_as_in_the_course() -> None:
    cells = ["lab = labkit.start(4)", 'labkit.check("05-3")']
    cells += ["lab.stop()\nlab = labkit.start(2, preload=p)", 'labkit.check("05-4")']
    assert plan.ranks(cells) == {"05-3": 4, "05-4": 2}
