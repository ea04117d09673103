"""Adapt the notebooks to pages: solutions folded, code and ranks in their colours, alt text.

A notebook's JSON is changed on its way into Sphinx, never the file.
"""

from __future__ import annotations

import copy
import json
import posixpath
import re
from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from docutils import nodes
from pygments.lexer import Lexer
from pygments.lexers import BashLexer, PythonLexer
from pygments.token import Name, _TokenType
from sphinx.application import Sphinx

from labkit.base.rank_names import RANK_COLOURS
from labkit.course.edition import delivered, has_solution, solved, stub

#: The first of as many numbers of the 256 colours of terminals as ranks have colours: the style
#: sheet defines what they look like on light and on dark pages. MyST-NB knows no other colours.
FIRST_COLOUR = 200
#: What a figure may be stored as.
FIGURES = {"image/png", "image/svg+xml"}
RGB = {
    ";".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5)): FIRST_COLOUR + number
    for number, colour in enumerate(RANK_COLOURS)
}


def anchor(title: str) -> str:
    """Return the anchor that JupyterLab gives a heading, as MyST reads it in a link."""
    return title.strip().replace(" ", "-").replace("%", "%25")


class CellLexer(Lexer):
    """Highlight a cell: below a magic such as ``%%px`` stands Python, too, or a batch script."""

    name = "labkit-cell"
    aliases = (name,)
    _magic = re.compile(r"^[ \t]*[%!].*\n?", re.MULTILINE)
    _shell = re.compile(r"%%(?:bash|writefile .*\.(?:sbatch|sh))\b")

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        shell = self._shell.match(text)
        lexer, most = (BashLexer(), 1) if shell else (PythonLexer(), None)
        end = 0
        for magic in islice(self._magic.finditer(text), most):
            yield from self._part(lexer, text[end : magic.start()], end)
            yield magic.start(), Name.Decorator, magic[0]
            end = magic.end()
        yield from self._part(lexer, text[end:], end)

    @staticmethod
    def _part(lexer: Lexer, text: str, start: int) -> Iterator[tuple[int, _TokenType, str]]:
        for place, token, value in lexer.get_tokens_unprocessed(text):
            yield start + place, token, value


def adapt(app: Sphinx, docname: str, content: list[str]) -> None:
    """Change the JSON of a notebook for its page."""
    if app.env.doc2path(docname).suffix != ".ipynb":
        return
    notebook = json.loads(content[0])
    notebook["metadata"]["language_info"] = {"name": "python", "pygments_lexer": CellLexer.name}
    alt: dict[str, str] = {}
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            for output in cell["outputs"]:
                alt |= _alt(output)
                _colour(output)
            cells += _folded(cell)
        else:
            cells.append(cell)
    notebook["cells"] = cells
    app.env.metadata[docname]["alt"] = alt
    content[0] = json.dumps(notebook)


def _folded(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a cell with a solution as two: the learner's stub, and the solution folded."""
    source = "".join(cell["source"])
    if not has_solution(source):
        return [cell]
    start = copy.deepcopy(cell)
    start.update(source=stub(source), outputs=[], execution_count=None)
    if "id" in cell:
        start["id"] = f"{cell['id']}-stub"
    cell["source"] = solved(source)
    cell["metadata"].setdefault("tags", []).append("hide-cell")
    cell["metadata"]["mystnb"] = {
        "code_prompt_show": "Show one solution",
        "code_prompt_hide": "Hide the solution",
    }
    return [start, cell]


def _alt(output: dict[str, Any]) -> dict[str, str]:
    """Return the alt text of a figure by its checksum, which is what MyST-NB names its file."""
    data, told = output.get("data", {}), {}
    for kind in FIGURES & data.keys():
        text = "".join(data[kind])
        content = b64decode(text) if kind == "image/png" else text.encode()
        told[sha256(content).hexdigest()] = output["metadata"][kind]["alt"]
    return told


def _colour(output: dict[str, Any]) -> None:
    """Translate the colours of ranks in what a cell printed or raised."""
    for key in ("text", "traceback"):
        if key in output:
            output[key] = [_translated(line) for line in output[key]]


def _translated(text: str) -> str:
    return re.sub(
        r"38;2;(\d+;\d+;\d+)",
        lambda match: f"38;5;{RGB[match[1]]}" if match[1] in RGB else "0",
        text,
    )


def describe(app: Sphinx, doctree: nodes.document) -> None:
    """Give the figures of a notebook the alt text that is stored with them, and its cells their
    numbers, which errors name (``In[23], line 3``)."""
    alt = app.env.metadata[app.env.docname].pop("alt", {})
    for image in doctree.findall(nodes.image):
        if text := alt.get(PurePath(image["uri"]).stem):
            image["alt"] = text
    for cell in list(doctree.findall(nodes.container)):
        if cell.get("nb_element") == "cell_code" and (number := cell.get("exec_count")):
            # A style sheet's text: it is neither copied with the code nor found by the search.
            # First and last child stay the source and the output, by which MyST-NB folds a cell.
            label = f'<span class="cell-number" data-number="[{number}]"></span>'
            cell.insert(1, nodes.raw("", label, format="html"))


def offer(app: Sphinx, doctree: nodes.document) -> None:
    """Say below a notebook's title where its learner's edition is."""
    docname = app.env.docname
    if app.env.doc2path(docname).suffix != ".ipynb":
        return
    edition = posixpath.relpath(f"_sources/{docname}.ipynb", posixpath.dirname(docname))
    link = nodes.reference("", "the learner’s edition", refuri=edition, classes=["edition"])
    start = nodes.Text("This page shows outputs and solutions. To work on it yourself, download ")
    title = next(doctree.findall(nodes.title))
    title.parent.insert(1, nodes.paragraph("", "", start, link, nodes.Text(".")))


def deliver(app: Sphinx, exception: Exception | None) -> None:
    """Offer the learner's edition of each notebook for download."""
    if exception is None:
        for path in Path(app.outdir, "_sources").rglob("*.ipynb"):
            path.write_bytes(delivered(path.name, path.read_bytes()))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_lexer(CellLexer.name, CellLexer)
    app.connect("source-read", adapt)
    app.connect("doctree-read", describe)
    app.connect("doctree-read", offer)
    app.connect("build-finished", deliver)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
