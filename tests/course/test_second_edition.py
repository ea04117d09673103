"""The rules of ``second_edition`` over all notebooks, and each on an example that it refuses."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from labkit.course import material
from tests.support.second_edition import RULES

PATH = Path("01_example.ipynb")
CHOICES = "\n".join(
    f"<details><summary>{letter}. this</summary>{said} because</details>"
    for letter, said in (("A", "No:"), ("B", "Right."), ("C", "No:"))
)
QUESTIONS = "\n\n".join(f"**{k}. Which?**\n{CHOICES}" for k in (1, 2, 3))
PAGE = "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed"
READ = f"**Read on.**\n- [a]({PAGE}.a) says\n- [b]({PAGE}.b) says\n- [c]({PAGE}.c) says"
STUB = '''%%px
def twice(x: float) -> float:
    """Return x doubled.

    >>> twice(2.0)
    4.0
    """
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION
'''


def text(source: str, *tags: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(source, metadata={"tags": list(tags)})


def good() -> list[NotebookNode]:
    """Return cells that keep every rule."""
    return [
        text(QUESTIONS, "recall"),
        text(f"[`dist.gather`]({PAGE}.gather) collects: one message per rank."),
        nbformat.v4.new_code_cell("%%px\ndist.gather(x)"),
        nbformat.v4.new_code_cell(STUB),
        text("## At work"),
        nbformat.v4.new_code_cell("%%torchrun --standalone --nproc-per-node=2\nprint(1)"),
        text(READ),
    ]


def problems(rule: str, cells: list[NotebookNode], path: Path = PATH) -> list[str]:
    return RULES[rule](nbformat.v4.new_notebook(cells=cells), path)


@pytest.mark.parametrize("path", material.notebooks(), ids=lambda path: path.stem)
def test_a_notebook_keeps_every_rule(path: Path) -> None:
    nb = nbformat.read(path, as_version=4)
    found = [
        f"{rule}: {RULES[rule].__doc__ or ''}\n{problem}"
        for rule in RULES
        for problem in RULES[rule](nb, path)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", RULES)
def test_a_good_notebook_keeps_it(rule: str) -> None:
    assert problems(rule, good()) == []


#: rule -> (what is replaced in which cell, by what)
BROKEN = [
    ("breathes", 2, "dist.gather(x)", "\n".join(f"x{k} = {k}" for k in range(21))),
    ("breathes", 5, "print(1)", "\n".join(f"x{k} = {k}" for k in range(20))),
    ("asks_three_questions", 0, "**3. Which?**", "Which?"),
    ("asks_three_questions", 0, "Right.", "No:"),
    ("asks_three_questions", 0, "No:", "Right."),
    ("asks_three_questions", 0, "No:", "Well,"),
    ("reads_on", 6, "- [c]", "- (c)"),
    ("reads_on", 6, "**Read on.**", "More:"),
    ("links_its_calls", 2, "gather", "scatter"),
    ("is_used_at_work", 4, "At work", "In a script"),
    ("is_used_at_work", 5, "%%torchrun ", "!torchrun "),
    ("specifies_its_stubs", 3, "x: float", "x"),
    ("specifies_its_stubs", 3, " -> float", ""),
    ("specifies_its_stubs", 3, ">>> twice(2.0)", "twice(2.0)"),
    ("is_plain_english", 1, "one message per rank", "one message a rank"),
    ("is_plain_english", 1, "one message per rank", "another one than expected"),
]


@pytest.mark.parametrize(("rule", "cell", "old", "new"), BROKEN)
def test_a_break_is_found(rule: str, cell: int, old: str, new: str) -> None:
    cells = good()
    assert old in cells[cell].source
    cells[cell].source = cells[cell].source.replace(old, new)
    if rule == "breathes" and cell == 2:
        cells[3].source = cells[5].source = cells[2].source
    assert problems(rule, cells)


def test_a_reference_notebook_needs_no_script() -> None:
    cells = [cell for cell in good() if "At work" not in cell.source]
    assert problems("is_used_at_work", cells)
    assert not problems("is_used_at_work", cells, Path("16_example.ipynb"))
