"""The learner's edition of a notebook: stubs in place of solutions, all else as it was."""

from __future__ import annotations

import ast
import copy

import nbformat
import pytest
from nbformat import NotebookNode

import labkit
from labkit.course import catalogue, edition, material

ANSWER = """%%px
def f(x):
    y = x
    ### BEGIN SOLUTION
    # why
    for _ in range(3):

        y = y + 1
    ### END SOLUTION
    return y"""
STUB = """%%px
def f(x):
    y = x
    # Your turn: about 2 lines.
    ...
    return y"""


def code(source: str) -> NotebookNode:
    output = nbformat.v4.new_output("stream", text="something\n")
    return nbformat.v4.new_code_cell(source, outputs=[output], execution_count=7)


@pytest.fixture
def nb() -> NotebookNode:
    text = "**Predict.**\n\n<details><summary>Answer</summary>\n\n6\n\n</details>"
    cells = [
        nbformat.v4.new_markdown_cell(text),
        code("1 + 1"),
        code(ANSWER),
        code("# look\nlabkit.check('03-1')"),
        code("f(3)"),
    ]
    cells[1].metadata.tags = ["nbval-ignore-output"]
    return nbformat.v4.new_notebook(cells=cells)


def test_a_solution_becomes_a_stub_of_its_size() -> None:
    assert edition.stub(ANSWER) == STUB
    assert "about 1 line." in edition.stub("### BEGIN SOLUTION\nx = 1\n### END SOLUTION")
    ast.parse(edition.stub(ANSWER).partition("\n")[2])


def test_a_stub_of_a_puzzle_names_a_range_of_lines() -> None:
    source = "### BEGIN SOLUTION of 5 to 16 lines\nx = 1\n### END SOLUTION"
    assert edition.stub(source) == "# Your turn: about 5 to 16 lines.\n..."
    assert edition.solved(source) == "x = 1"


def test_a_solution_is_shown_without_its_marks() -> None:
    assert edition.solved("### BEGIN SOLUTION\nx = 1\n### END SOLUTION\nx") == "x = 1\nx"


def test_outputs_are_cleared_which_would_answer_what_the_text_asks(nb: NotebookNode) -> None:
    before = copy.deepcopy(nb)
    learners = edition.learners(nb)
    assert nb == before
    assert [len(cell.outputs) for cell in learners.cells[1:]] == [0, 0, 0, 0]
    assert [cell.execution_count for cell in learners.cells[1:]] == [None] * 4
    assert learners.cells[2].source == STUB
    for mine, theirs in zip(nb.cells, learners.cells, strict=True):
        assert mine.id == theirs.id
        assert mine.metadata == theirs.metadata
        if mine is not nb.cells[2]:
            assert mine.source == theirs.source


def test_it_is_the_same_every_time_and_done_once(nb: NotebookNode) -> None:
    once = edition.learners(nb)
    assert once == edition.learners(nb)
    assert edition.learners(once) == once
    content = nbformat.writes(nb).encode()
    delivered = edition.delivered("notebooks/04.ipynb", content)
    assert delivered == edition.delivered("notebooks/04.ipynb", content)
    assert edition.delivered("notebooks/04.ipynb", delivered) == delivered
    assert nbformat.validate(nbformat.reads(delivered.decode(), as_version=4)) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notebooks/x.ipynb", b"no notebook at all"),
        ("notebooks/x.ipynb", b'{"cells": []}   '),
        ("data/x.bin", b"### BEGIN SOLUTION \xff"),
    ],
)
def test_what_is_no_notebook_with_cells_is_delivered_as_it_is(name: str, content: bytes) -> None:
    assert edition.delivered(name, content) == content


@pytest.mark.parametrize(
    "source",
    [
        "### BEGIN SOLUTION\n1",
        "1\n### END SOLUTION",
        "### END SOLUTION\n1\n### BEGIN SOLUTION",
        "### BEGIN SOLUTION\n1\n### END SOLUTION\n### BEGIN SOLUTION\n1\n### END SOLUTION",
        "### BEGIN SOLUTION here\n1\n### END SOLUTION",
        "### BEGIN SOLUTION of some lines\n1\n### END SOLUTION",
        "### BEGIN SOLUTION\n\n### END SOLUTION",
    ],
)
def test_a_region_that_is_not_well_formed(source: str) -> None:
    assert edition.problem_of(source)
    with pytest.raises(labkit.LabError, match="not marked well"):
        edition.stub(source)


FILE = (
    "%%writefile my.py\n### BEGIN SOLUTION from scripts/single.py\nx = 1\n# one\ny = 2\n"
    "### END SOLUTION"
)


def test_a_file_begins_as_one_of_the_course() -> None:
    text = material.file("scripts/single.py").read_text()
    magic, said, *rest = edition.stub(FILE).split("\n")
    assert magic == "%%writefile my.py"
    assert said == "# Your turn: about 2 lines. This is scripts/single.py, to be changed."
    assert "\n".join(rest) == text.rstrip("\n")
    assert edition.solved(FILE) == "%%writefile my.py\nx = 1\n# one\ny = 2"


def test_a_first_line_that_has_to_stay_the_first() -> None:
    text = material.file("scripts/one_node.sbatch").read_text()
    source = (
        "%%writefile my.sbatch\n#!/bin/bash\n### BEGIN SOLUTION from scripts/one_node.sbatch\n"
        "#SBATCH --nodes=2\n# one\nsrun x\n### END SOLUTION"
    )
    magic, first, said, *rest = edition.stub(source).split("\n")
    assert (magic, first) == ("%%writefile my.sbatch", "#!/bin/bash")
    # What sbatch reads is code, too.
    assert said.startswith("# Your turn: about 2 lines. This is scripts/one_node.sbatch")
    assert "\n".join([first, *rest]) == text.rstrip("\n")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (FILE.replace("single.py", "no.py"), "the course has no file scripts/no.py"),
        (FILE.partition("\n")[2], "only a cell that begins with '%%writefile '"),
    ],
)
def test_a_file_that_cannot_begin(source: str, problem: str) -> None:
    assert problem in str(edition.problem_of(source))


def test_a_cell_without_a_solution_has_no_problem() -> None:
    assert edition.problem_of("x = 1") is None
    assert edition.problem_of(ANSWER) is None


def test_exercises_in_a_file(nb: NotebookNode) -> None:
    nb.cells.append(code('labkit.check("03-2")'))
    nb.cells.append(code('labkit.check("03-2")'))
    assert edition.exercises_in(nbformat.writes(nb).encode()) == ["03-1", "03-2"]
    assert edition.exercises_in(b"no notebook") == []


def test_definitions(nb: NotebookNode) -> None:
    nb.cells.append(code('labkit.check("03-2")'))  # which nothing defines
    assert list(edition.definitions(nb)) == [("03-1", ANSWER)]


def test_the_solution_of_an_exercise_comes_from_the_course() -> None:
    source = edition.solution("00-3")
    assert source.startswith("%%px\ndef neighbour() -> int:\n")
    assert "SOLUTION" not in source
    with pytest.raises(labkit.LabError, match="no solution of exercise 00-99"):
        edition.solution("00-99")


def test_the_solution_of_an_exercise_without_ranks_and_of_one_at_the_back() -> None:
    assert edition.solution("06-1").startswith("def end_of_step(")
    assert edition.solution("23-2").startswith("%%px\ndef meet(")


@pytest.mark.parametrize("path", material.notebooks(), ids=lambda path: path.stem)
def test_a_real_notebook_gives_nothing_away(path) -> None:
    content = path.read_bytes()
    learners = edition.delivered(f"notebooks/{path.name}", content)
    assert b"SOLUTION" not in learners
    ids = edition.exercises_in(content)
    assert edition.exercises_in(learners) == ids
    if path.name[:2] in catalogue.numbers():
        known = [exercise.id for exercise in catalogue.of_notebook(path.name[:2])]
        assert ids == [name for name in known if name in ids]
    assert learners.count(b"# Your turn: about") == len(ids)
    assert not any(f"{name} passed.".encode() in learners for name in ids)


@pytest.mark.parametrize("number", catalogue.numbers())
def test_a_number_has_each_of_its_exercises_in_one_notebook(number: str) -> None:
    found = [edition.exercises_in(path.read_bytes()) for path in material.notebooks(number)]
    known = [exercise.id for exercise in catalogue.of_notebook(number)]
    assert sorted(name for ids in found for name in ids) == sorted(known)
