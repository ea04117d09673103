"""What the learner's index promises stands in code cells that have been run.

Each row of ``notebooks/README.md`` names concepts and where they are taught. Its words in code font
(``isend``, ``%%px``, ``no_sync``) have to stand in a code cell of that notebook.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat

from labkit.course import material
from tests.support.notebook_rules import link_problem, links

INDEX = Path(material.root()) / "notebooks" / "README.md"
#: Taught in the text: to use them takes several hosts, a GPU or another package.
IN_TEXT = {"NCCL_ALGO", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "StatefulDataLoader"}


@cache
def sources(number: str, kind: str) -> str:
    """Return the cells of a kind of a notebook; of code, those that have been run, without
    comments."""
    cells = [c for p in material.notebooks(number) for c in nbformat.read(p, as_version=4).cells]
    texts = [c.source for c in cells if c.cell_type == kind and c.get("execution_count", 1)]
    return "\n".join(re.sub(r"#.*", "", text) if kind == "code" else text for text in texts)


def taught() -> Iterator[tuple[str, str, bool]]:
    """Yield each word in code font with a row's notebooks, and whether it stands in their code."""
    for line in INDEX.read_text().splitlines():
        concepts, _, where = line.partition(" | ")
        numbers = sorted(set(re.findall(r"\((\d\d)_\w+\.ipynb", where)))
        for word in re.findall(r"`([^`]+)`", concepts) if numbers else ():
            kind = "markdown" if word in IN_TEXT else "code"
            names = re.findall(r"%%?\w+|[A-Za-z_][\w.]*", word)
            cells = "\n".join(sources(number, kind) for number in numbers)
            yield word, ", ".join(numbers), all(name in cells for name in names)


def test_what_the_index_names_is_in_code_that_ran() -> None:
    found = list(taught())
    assert len(found) > 100
    assert [(word, numbers) for word, numbers, is_there in found if not is_there] == []
    assert {word for word, *_ in found} >= IN_TEXT


def test_every_link_of_the_index_leads_somewhere() -> None:
    cell = nbformat.v4.new_markdown_cell(INDEX.read_text())
    nb = nbformat.v4.new_notebook(cells=[cell])
    found = links(cell.source)
    linked = {name for link in found if (name := link.partition("#")[0]).endswith(".ipynb")}
    assert linked == {p.name for p in material.notebooks()}
    problems = [(link, link_problem(link, cell, nb, INDEX, INDEX.parent.parent)) for link in found]
    assert [problem for problem in problems if problem[1]] == []
