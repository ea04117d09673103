"""The learner's glossary explains words that the notebooks use, where it says that they do."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import nbformat

from labkit.course import material

PATH = Path(material.root()) / "notebooks" / "GLOSSARY.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PATH.read_text().splitlines()
    if re.match(r"\| (?!word \|)", line)
]


def words(row: list[str]) -> list[str]:
    """Return the words that a row explains, without what stands in brackets."""
    return [word.strip().lower() for word in re.sub(r" \(.*?\)", "", row[0]).split(",")]


@cache
def beginnings(notebook: str) -> frozenset[str]:
    """Return how the words in the cells of a notebook begin."""
    cells = nbformat.read(PATH.parent / notebook, as_version=4).cells
    return frozenset(stems("\n".join(cell.source for cell in cells)))


def stems(text: str) -> set[str]:
    """Return the first letters of each word: "scaling" and "scaled" count as one."""
    return {word[:4] for word in re.findall("[a-z]+", text.lower())}


def is_explained(row: list[str]) -> bool:
    """Return whether a word of a row stands in one of the notebooks that the row names."""
    notebooks = re.findall(r"\]\((\w+\.ipynb)\)", row[2])
    return any(stems(word) <= beginnings(n) for word in words(row) for n in notebooks)


def test_each_word_stands_in_a_notebook_that_explains_it() -> None:
    assert [row[0] for row in ROWS if not is_explained(row)] == []


def test_no_word_is_explained_twice() -> None:
    every = [word for row in ROWS for word in words(row)]
    assert sorted(every) == sorted(set(every))
