"""Link the first use of each word of the glossary, in every notebook, to what it means.

The rows of ``notebooks/GLOSSARY.md`` get an anchor per word (``#word-process-group``). In the
paragraphs of a notebook the first use of a word becomes a link there, with the meaning as its
tooltip. Headings, links and code stay as they are, and so do the folded answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

GLOSSARY = "notebooks/GLOSSARY"
#: Words that have another meaning, too (a tree's node, a module's buffer, a GPU's kernel): linked
#: only in the notebooks that explain the one of the glossary.
SEVERAL_MEANINGS = ("buffer", "kernel", "node", "worker")
#: Where a word of the glossary is not to be linked: what is a link, a title or code already.
NOT_IN = (nodes.reference, nodes.title, nodes.literal, nodes.literal_block, nodes.raw)


@dataclass(frozen=True)
class Word:
    """A word of the glossary, its anchor there, what it means, and which notebooks explain it."""

    text: str
    anchor: str
    meaning: str
    explained_in: tuple[str, ...]

    def belongs_in(self, docname: str) -> bool:
        """Tell whether a notebook uses the word in this meaning."""
        number = docname.rpartition("/")[2][:2]
        return self.text not in SEVERAL_MEANINGS or number in self.explained_in

    @property
    def pattern(self) -> str:
        """A regular expression for its uses: ``ranks`` for rank, ``Process group``, ``DDP``."""
        # Names such as DDP have no other spelling; the first letter of others may be a capital.
        first = self.text[0]
        start = f"[{first.upper()}{first}]" if self.text.islower() else re.escape(first)
        rest = re.escape(self.text[1:]).replace(r"\ ", r"\s+")
        return rf"{start}{rest}(?:e?s)?"


def words(row: str) -> list[str]:
    """Return the words that a row explains, without what stands in brackets."""
    return [word.strip() for word in re.sub(r" \(.*?\)", "", row).split(",")]


def place_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Give each row of the glossary an anchor per word, and remember its words."""
    if app.env.docname != GLOSSARY:
        return
    found = []
    for body in doctree.findall(nodes.tbody):
        for row in body:
            entry, meaning, notebooks = row.children
            for text in words(entry.astext()):
                anchor = "word-" + nodes.make_id(text)
                entry["ids"].append(anchor)
                found.append(
                    Word(text, anchor, meaning.astext(), tuple(notebooks.astext().split(", ")))
                )
    app.env.metadata[GLOSSARY]["words"] = found


@cache
def _pattern(texts: tuple[Word, ...]) -> re.Pattern[str]:
    """Return an expression for the use of any word; the longest of several counts."""
    longest = sorted(texts, key=lambda word: -len(word.text))
    return re.compile(
        r"(?<![\w-])(?:"
        + "|".join(f"(?P<w{texts.index(word)}>{word.pattern})" for word in longest)
        + r")(?![\w-])"
    )


def link_first_uses(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the first use of each word in a notebook."""
    if app.env.doc2path(docname).suffix != ".ipynb":
        return
    every: list[Word] = app.env.metadata[GLOSSARY]["words"]
    known = tuple(word for word in every if word.belongs_in(docname))
    glossary = app.builder.get_relative_uri(docname, GLOSSARY)
    linked: set[str] = set()
    for text in list(doctree.findall(nodes.Text)):
        if not _is_prose(text):
            continue
        parts: list[nodes.Node] = []
        end = 0
        for match in _pattern(known).finditer(text):
            word = known[int(match.lastgroup[1:])]
            if word.anchor in linked:
                continue
            linked.add(word.anchor)
            parts.append(nodes.Text(text[end : match.start()]))
            link = nodes.reference("", match[0], internal=True, classes=["glossary-word"])
            link["refuri"] = f"{glossary}#{word.anchor}"
            link["reftitle"] = word.meaning
            parts.append(link)
            end = match.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def _is_prose(text: nodes.Text) -> bool:
    """Tell whether a text stands in a paragraph, and not in a link, a title or code."""
    above, inside = text.parent, False
    while above is not None:
        if isinstance(above, NOT_IN):
            return False
        inside = inside or isinstance(above, nodes.paragraph)
        above = above.parent
    return inside


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", place_anchors)
    app.connect("doctree-resolved", link_first_uses)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
