"""The rules that every notebook of the course keeps: one function each, in ``RULES``.

A rule takes a notebook and its path, and returns one sentence for each break of it. Cells are
numbered from 1, text cells included, as somebody who scrolls counts them.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
from markdown_it import MarkdownIt
from markdown_it.token import Token
from nbformat import NotebookNode
from nbval.plugin import find_comment_markers, find_metadata_tags

from labkit.course import edition

Rule = Callable[[NotebookNode, Path], list[str]]

MAX_LINES = 25
MAX_CELLS = 60
MAX_OUTPUT_BYTES = 400_000
#: How many code cells after one whose output is ignored may pass until one is compared.
COMPARED_WITHIN = 3
#: What a cell can be tagged with: for nbclient and nbval, for the share that runs (tests/support),
#: for the record of runs on GPUs, and as a quiz.
TAGS = re.compile(r"raises-exception|nbval-(ignore-output|skip)|costly|waits-for-[\w-]+|recall")
#: Exercises of a notebook that has any.
MIN_EXERCISES = 3

WIDGET = "application/vnd.jupyter.widget-view+json"
#: A home or temporary folder at the start of a path; `notebooks/work/` is none.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:tmp|home|root|work|Users)/[^\s'\"<>,)]*")
#: What no text says: the old distributive "a", and words that are not the field's.
REFUSED = re.compile(
    r"\b(?:once|one|two|per se|row|call|message|seconds) a (?:rank|node|byte|step|second|call|"
    r"collective|operation|row)\b|\banother one than\b|\bbuilt of\b|\bhand(?:s|ed)? over\b|"
    r"\bsigns? of life\b",
    re.IGNORECASE,
)
DOCUMENTATION = "docs.pytorch.org"
#: Calls that are in every notebook, and linked in those that explain them.
KNOWN = (
    "all_reduce", "barrier", "broadcast", "destroy_process_group", "get_backend", "get_rank",
    "get_world_size", "init_process_group", "is_initialized", "recv", "send",
)  # fmt: skip
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def code_cells(nb: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """Yield (number, cell) of the code cells."""
    return ((i, cell) for i, cell in enumerate(nb.cells, 1) if cell.cell_type == "code")


def text_of(nb: NotebookNode) -> str:
    """Return all text cells as one text."""
    return "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")


def nbval_options(cell: NotebookNode) -> dict[str, bool]:
    """Return what nbval reads from a cell's tags and comments: check, skip, check_exception."""
    from_tags, from_comments = find_metadata_tags(cell.metadata), find_comment_markers(cell.source)
    return {"check": True, "skip": False, **dict(from_tags), **dict(from_comments)}


def bundles(cell: NotebookNode) -> Iterator[dict[str, object]]:
    """Yield the mime bundle of every rich output of a code cell."""
    return (out.data for out in cell.outputs if "data" in out)


def texts(cell: NotebookNode) -> Iterator[str]:
    """Yield every text that a code cell has stored: streams, tracebacks, results, SVG, HTML."""
    for out in cell.outputs:
        if out.output_type == "stream":
            yield out.text
        elif out.output_type == "error":
            yield "\n".join([out.evalue, *out.traceback])
    for bundle in bundles(cell):
        for mime, data in bundle.items():
            if mime not in ("image/png", "image/jpeg", "application/pdf"):
                yield data if isinstance(data, str) else json.dumps(data)


# -- the rules ----------------------------------------------------------------------------------


def was_run_once_in_order(nb: NotebookNode, path: Path) -> list[str]:
    """Every code cell has an execution count, and the counts are 1, 2, 3, …"""
    problems = []
    for expected, (i, cell) in enumerate(code_cells(nb), 1):
        if cell.execution_count != expected:
            problems.append(f"cell {i} has execution count {cell.execution_count}, not {expected}")
    return problems


def stores_no_widget_or_script(nb: NotebookNode, path: Path) -> list[str]:
    """No output needs a widget's state or runs JavaScript: neither survives a reopened notebook."""
    problems = ["metadata.widgets is stored"] if "widgets" in nb.metadata else []
    for i, cell in code_cells(nb):
        for bundle in bundles(cell):
            bad = [mime for mime in bundle if mime == WIDGET or "javascript" in mime]
            if "<script" in str(bundle.get("text/html", "")).lower():
                bad.append("a <script> in text/html")
            problems += [f"cell {i} stores {what}" for what in bad]
    return problems


def links_lead_somewhere(nb: NotebookNode, path: Path) -> list[str]:
    """Every relative link and image exists, and so does every anchor into a notebook.

    A learner's copy of the course has the folders notebooks/ and data/ only, so links stay there.
    """
    problems = []
    root = path.parent.parent
    for i, cell in enumerate(nb.cells, 1):
        for link in links(cell.source) if cell.cell_type == "markdown" else ():
            problem = link_problem(link, cell, nb, path, root)
            if problem:
                problems.append(f"cell {i}: {link} {problem}")
    return problems


def link_problem(
    link: str, cell: NotebookNode, nb: NotebookNode, path: Path, root: Path
) -> str | None:
    """Return what is wrong with one link of a text cell, if anything."""
    parts = urlsplit(link)
    if parts.scheme == "attachment":
        known = unquote(parts.path) in cell.get("attachments", {})
        return None if known else "is not attached to the cell"
    if parts.scheme or parts.netloc:
        return None  # another site
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if parts.path.startswith("/") or not any(
        target.is_relative_to((root / part).resolve()) for part in ("notebooks", "data")
    ):
        return "leads out of notebooks/ and data/"
    if not parts.path or target == path.resolve():
        target_nb = nb
    elif not target.exists():
        return "does not exist"
    elif target.suffix == ".ipynb" and parts.fragment:
        target_nb = nbformat.read(target, as_version=4)
    else:
        return None
    if parts.fragment and unquote(parts.fragment) not in anchors(target_nb):
        return "names a heading that does not exist"
    return None


def explains_what_is_skipped(nb: NotebookNode, path: Path) -> list[str]:
    """A cell that the tests skip stands below a text cell that says why it is skipped."""
    problems = []
    for i, cell in code_cells(nb):
        before = nb.cells[i - 2] if i > 1 else None
        explained = (
            before is not None
            and before.cell_type == "markdown"
            and re.search(r"\bskip", before.source, re.IGNORECASE)
        )
        if nbval_options(cell)["skip"] and not explained:
            problems.append(f"cell {i} is skipped by the tests; the text before it does not say so")
    return problems


def checks_what_it_ignores(nb: NotebookNode, path: Path) -> list[str]:
    """After a cell whose output is ignored comes one whose output is compared, soon."""
    problems = []
    cells = list(code_cells(nb))
    for position, (i, cell) in enumerate(cells):
        if nbval_options(cell)["check"]:
            continue
        following = [c for _, c in cells[position + 1 : position + 1 + COMPARED_WITHIN]]
        if not any(is_compared(c) for c in following):
            problems.append(
                f"cell {i} is not compared, nor is any of the {COMPARED_WITHIN} code cells after it"
            )
    return problems


def is_compared(cell: NotebookNode) -> bool:
    """Return whether nbval compares something: a stored output other than a picture."""
    options = nbval_options(cell)
    if options["skip"] or not options["check"] or cell.execution_count is None:
        return False
    return any(text.strip() for text in texts(cell))


def is_short(nb: NotebookNode, path: Path) -> list[str]:
    """A notebook is for one sitting, and no cell is longer than a screen, but for a file."""
    problems = [f"it has {len(nb.cells)} cells, not ≤ {MAX_CELLS}"] * (len(nb.cells) > MAX_CELLS)
    lengths = [
        (i, len(cell.source.splitlines()))
        for i, cell in enumerate(nb.cells, 1)
        if not cell.source.startswith(edition.WRITES_FILE)  # a file is as long as it is
    ]
    long = [(i, n) for i, n in lengths if n > MAX_LINES]
    return problems + [f"cell {i} has {n} lines, not ≤ {MAX_LINES}" for i, n in long]


def has_tags_that_somebody_reads(nb: NotebookNode, path: Path) -> list[str]:
    """Every tag means something to nbval, nbclient or the course; a misspelled one says nothing."""
    return [
        f"cell {i} has the tag {tag!r}"
        for i, cell in enumerate(nb.cells)
        for tag in cell.metadata.get("tags", [])
        if not TAGS.fullmatch(tag)
    ]


def stores_little(nb: NotebookNode, path: Path) -> list[str]:
    """The stored output of a cell stays small: a notebook is downloaded, diffed and reviewed."""
    problems = []
    for i, cell in code_cells(nb):
        size = len(json.dumps(cell.outputs).encode())
        if size > MAX_OUTPUT_BYTES:
            problems.append(f"cell {i} stores {size // 1000} kB, not ≤ {MAX_OUTPUT_BYTES // 1000}")
    return problems


def stores_no_machine_path(nb: NotebookNode, path: Path) -> list[str]:
    """No stored output shows a home or temporary folder of the machine that it was made on."""
    problems = []
    for i, cell in code_cells(nb):
        for text in texts(cell):
            found = dict.fromkeys(MACHINE_PATH.findall(ESCAPE.sub("", text)))
            problems += [f"cell {i} stores the path {name}" for name in found]
    return problems


def stops_its_lab(nb: NotebookNode, path: Path) -> list[str]:
    """A notebook that starts a lab stops it, after the last start."""
    starts, stops = [], []
    for i, cell in code_cells(nb):
        for line in cell.source.splitlines():
            if line.lstrip().startswith("#"):
                continue
            if "labkit.start(" in line and not line.lstrip().startswith("with "):
                starts.append(i)
            if "lab.stop()" in line:
                stops.append(i)
    if starts and (not stops or stops[-1] < starts[-1]):
        return [f"the lab that cell {starts[-1]} starts is not stopped by lab.stop()"]
    return []


def uses_the_python3_kernel(nb: NotebookNode, path: Path) -> list[str]:
    """The notebook opens in the kernel that every installation has."""
    name = nb.metadata.get("kernelspec", {}).get("name")
    return [] if name == "python3" else [f"the kernelspec is {name!r}, not 'python3'"]


def has_exercises_that_can_be_checked(nb: NotebookNode, path: Path) -> list[str]:
    """Solutions are marked well; each exercise has a text, a cell with its solution and a check
    that passes; and a notebook that has exercises has at least three, numbered in order."""
    problems, checks = [], []
    text, pending = "", None  # what was last read, and the cell of a solution without a check
    for i, cell in enumerate(nb.cells, 1):
        if cell.cell_type == "markdown":
            text += cell.source
        elif edition.has_solution(cell.source):
            if problem := edition.problem_of(cell.source):
                problems.append(f"cell {i}: {problem}")
            if pending:
                problems.append(f"cell {pending} has a solution that nothing checks")
            pending = i
        for name in edition.CHECK.findall(cell.source) if cell.cell_type == "code" else ():
            checks.append(name)
            if f"**Exercise {name}: " not in text:
                problems.append(f"cell {i} checks {name}, of which no text tells")
            if pending is None:
                problems.append(f"cell {i} checks {name}, which no cell before it solves")
            if f"{name} passed." not in "".join(texts(cell)):
                problems.append(f"cell {i} stores no passed check of {name}")
            pending = None
    if pending:
        problems.append(f"cell {pending} has a solution that nothing checks")
    if checks or problems:
        count = max(MIN_EXERCISES, len(checks))
        expected = [f"{path.name[:2]}-{k}" for k in range(1, count + 1)]
        if checks != expected:
            problems.append(f"its exercises are {checks}, not {expected}")
    return problems


def links_its_calls(nb: NotebookNode, path: Path) -> list[str]:
    """Each function of ``torch.distributed`` that a cell calls has a link to its documentation."""
    called: dict[str, int] = {}
    for i, cell in code_cells(nb):
        for name in re.findall(r"\bdist\.([a-z]\w*)\(", cell.source):
            called.setdefault(name, i)
    linked = {link.rsplit(".", 1)[-1] for link in links(text_of(nb)) if DOCUMENTATION in link}
    return [
        f"cell {i} calls dist.{name}, which no text links" for name, i in called.items()
        if name not in linked and name not in KNOWN
    ]  # fmt: skip


def specifies_its_stubs(nb: NotebookNode, path: Path) -> list[str]:
    """A function that a learner is to write has typed arguments and a docstring with an example,
    which the learner's edition keeps."""
    problems = []
    for i, cell in code_cells(nb):
        is_file = cell.source.startswith(edition.WRITES_FILE)
        if is_file or not edition.has_solution(cell.source):
            continue
        source = re.sub(r"^%%.*$", "", edition.stub(cell.source), flags=re.M)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                problems += _problems_of_a_stub(node, i)
    return problems


def _problems_of_a_stub(node: ast.FunctionDef, i: int) -> list[str]:
    arguments = [a for a in (*node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
    problems = []
    if any(a.annotation is None for a in arguments) or node.returns is None:
        problems.append(f"cell {i}: {node.name} has arguments or a result without a type")
    if ">>>" not in (ast.get_docstring(node) or ""):
        problems.append(f"cell {i}: {node.name} has no docstring with an example")
    return problems


def is_plain_english(nb: NotebookNode, path: Path) -> list[str]:
    """No text has the turns of phrase that readers stumbled over."""
    return [f"it says {match[0]!r}" for match in REFUSED.finditer(text_of(nb))]


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        was_run_once_in_order,
        stores_no_widget_or_script,
        links_lead_somewhere,
        explains_what_is_skipped,
        checks_what_it_ignores,
        is_short,
        has_tags_that_somebody_reads,
        stores_little,
        stores_no_machine_path,
        stops_its_lab,
        uses_the_python3_kernel,
        has_exercises_that_can_be_checked,
        links_its_calls,
        specifies_its_stubs,
        is_plain_english,
    )
}


# -- reading text cells -------------------------------------------------------------------------


class _Tags(HTMLParser):
    """Collect where the HTML of a text cell leads to, and the ids that it sets.

    JupyterLab takes ``name`` out of an ``<a>``, so only an id makes an anchor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (tag, name) in (("a", "href"), ("img", "src")):
                self.links.append(value)
            if value and name == "id":
                self.ids.add(value)


def links(source: str) -> list[str]:
    """Return where the links and images of a Markdown text lead, HTML ones included."""
    found = []
    for token in _tokens(source):
        if token.type in ("link_open", "image"):
            found.append(str(token.attrGet("href") or token.attrGet("src") or ""))
    return found + _tags(source).links


def anchors(nb: NotebookNode) -> set[str]:
    """Return the anchors of a notebook: HTML ids, and its headings as JupyterLab names them (the
    text as it is, with hyphens for spaces)."""
    names = set()
    for cell in nb.cells:
        if cell.cell_type != "markdown":
            continue
        names |= _tags(cell.source).ids
        tokens = _tokens(cell.source)
        for before, token in itertools.pairwise(tokens):
            if before.type == "heading_open":
                shown = [
                    t.content for t in token.children or () if t.type in ("text", "code_inline")
                ]
                names.add("".join(shown).strip().replace(" ", "-"))
    return names


def _tags(source: str) -> _Tags:
    tags = _Tags()
    for token in _tokens(source):
        if token.type in ("html_inline", "html_block"):
            tags.feed(token.content)
    return tags


def _tokens(source: str) -> list[Token]:
    """Parse Markdown into a flat list: the inline tokens of a block come after it."""
    flat = []
    for token in MarkdownIt("commonmark").enable("table").parse(source):
        flat += [token, *(token.children or ())]
    return flat
