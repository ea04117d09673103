"""The rules of notebooks since the course's second edition: how they ask, breathe and refer.

One function each, in ``RULES``, as in ``notebook_rules``.
"""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

from nbformat import NotebookNode

from labkit.course import edition
from tests.support.notebook_rules import Rule, code_cells, links

#: The notebooks that the rules are for, by their stems.
DONE: tuple[str, ...] = (
    "00_start_here",
    "01_point_to_point",
    "02_collectives",
    "03_ring_allreduce",
    "04_sync_sgd",
    "05_process_groups",
    "06_ddp",
    "07_mixed_precision",
    "08_training_recipe",
    "09_data_parallel",
    "10_checkpointing",
    "11_model_parallel",
    "12_launchers_torchrun",
    "13_rpc",
    "14_scaling_out",
    "15_rendezvous_and_backends",
    "16_collectives_in_depth",
    "17_ddp_in_depth",
    "18_fsdp_in_depth",
    "19_the_bill",
)
#: Those at the back, which are looked into rather than read.
REFERENCE = ("15", "16", "17", "18", "19")

MEDIAN_LINES, MOST_LINES = 5, 20
QUESTIONS, LEAST_CHOICES, LEAST_LINKS = 3, 3, 3
DOCUMENTATION = "docs.pytorch.org"
#: What no text says: the old distributive "a", and words that are not the field's.
REFUSED = re.compile(
    r"\b(?:once|one|two|per se|row|call|message|seconds) a (?:rank|node|byte|step|second|call|"
    r"collective|operation|row)\b|\banother one than\b|\bbuilt of\b|\bhand(?:s|ed)? over\b|"
    r"\bsigns? of life\b",
    re.IGNORECASE,
)


def text_of(nb: NotebookNode) -> str:
    """Return all text cells as one text."""
    return "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")


def lines_of(source: str) -> int:
    """Count the lines of code of a cell: blank ones, comments and a magic's do not count."""
    lines = (line.strip() for line in source.splitlines())
    return sum(bool(line) and not line.startswith(("#", "%%")) for line in lines)


def breathes(nb: NotebookNode, path: Path) -> list[str]:
    """Half of the code cells are as short as a thought; none is longer than half a screen, but for
    the text of a file."""
    counts = {
        i: lines_of(cell.source)
        for i, cell in code_cells(nb)
        if not cell.source.startswith(edition.WRITES_FILE)
    }
    median = statistics.median(counts.values())
    problems = [f"cell {i} has {n} lines" for i, n in counts.items() if n > MOST_LINES]
    if median > MEDIAN_LINES:
        problems.append(f"its code cells have {median} lines in the median, not ≤ {MEDIAN_LINES}")
    return problems


def asks_three_questions(nb: NotebookNode, path: Path) -> list[str]:
    """A cell with the tag ``recall`` asks three questions, each with choices that explain
    themselves; it needs no JavaScript."""
    cells = [cell for cell in nb.cells if "recall" in cell.metadata.get("tags", ())]
    if len(cells) != 1 or cells[0].cell_type != "markdown":
        return [f"{len(cells)} cells have the tag recall, not one text cell"]
    problems = []
    questions = re.split(r"^\*\*\d\. ", cells[0].source, flags=re.M)[1:]
    if len(questions) != QUESTIONS:
        problems.append(f"it asks {len(questions)} questions, not {QUESTIONS}")
    for number, question in enumerate(questions, 1):
        answers = re.findall(r"</summary>\s*(\w+)", question)
        if len(answers) < LEAST_CHOICES or set(answers) - {"Right", "No"}:
            problems.append(f"question {number} has the choices {answers}")
        elif answers.count("Right") != 1:
            problems.append(f"question {number} has {answers.count('Right')} right choices")
    return problems


def reads_on(nb: NotebookNode, path: Path) -> list[str]:
    """It ends with links to read on, each described."""
    for cell in nb.cells[::-1]:
        if cell.cell_type == "markdown" and "**Read on.**" in cell.source:
            rest = cell.source[cell.source.index("**Read on.**") :]
            outside = [link for link in links(rest) if link.startswith("https://")]
            few = len(outside) < LEAST_LINKS
            return [f"it has {len(outside)} links to read on, not {LEAST_LINKS}"] if few else []
    return ["no text cell has **Read on.**"]


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


#: What is in every notebook, and linked in those that explain it.
KNOWN = (
    "all_reduce", "barrier", "broadcast", "destroy_process_group", "get_backend", "get_rank",
    "get_world_size", "init_process_group", "is_initialized", "recv", "send",
)  # fmt: skip


def is_used_at_work(nb: NotebookNode, path: Path) -> list[str]:
    """Its lines stand in a script too, with the command that starts it."""
    if path.name.startswith(REFERENCE):
        return []
    if "At work" not in text_of(nb):
        return ["no section is called At work"]
    if not any(cell.source.startswith("%%torchrun ") for _, cell in code_cells(nb)):
        return ["no cell begins with %%torchrun"]
    return []


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
        breathes,
        asks_three_questions,
        reads_on,
        links_its_calls,
        is_used_at_work,
        specifies_its_stubs,
        is_plain_english,
    )
}
