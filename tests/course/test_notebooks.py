"""The rules of ``notebook_rules`` over every notebook, and each rule on an example it refuses."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tests.support.notebook_rules import RULES

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_keeps_every_rule(path: Path) -> None:
    nb = nbformat.read(path, as_version=4)
    problems = [
        f"{rule}: {RULES[rule].__doc__ or ''}\n{problem}"
        for rule in RULES
        for problem in RULES[rule](copy.deepcopy(nb), path)
    ]
    assert not problems, "\n".join(problems)


# -- the rules on notebooks made here -----------------------------------------------------------


def text(source: str, **more: object) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(source, **more)


def code(source: str = "1", *outputs: NotebookNode, tags: tuple[str, ...] = ()) -> NotebookNode:
    cell = nbformat.v4.new_code_cell(source, outputs=list(outputs))
    if tags:
        cell.metadata.tags = list(tags)
    return cell


def prints(content: str) -> NotebookNode:
    return nbformat.v4.new_output("stream", text=content)


def shows(**mimes: str) -> NotebookNode:
    data = {mime.replace("_", "/", 1): content for mime, content in mimes.items()}
    return nbformat.v4.new_output("display_data", data=data)


def book(*cells: NotebookNode) -> NotebookNode:
    """Make a notebook of copies of the cells, the code cells having run in order."""
    cells = tuple(copy.deepcopy(cell) for cell in cells)
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    nb = nbformat.v4.new_notebook(cells=list(cells))
    nb.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    for count, cell in enumerate((c for c in cells if c.cell_type == "code"), 1):
        cell.execution_count = count
    return nb


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a notebook would be, in a course that has one more notebook and a data file."""
    folder = tmp_path / "course" / "notebooks"
    folder.mkdir(parents=True)
    nbformat.write(book(text("## Add up: `all_reduce`")), folder / "other one.ipynb")
    (folder.parent / "data").mkdir()
    (folder.parent / "data" / "digits.csv").write_text("1\n")
    (folder.parent / "README.md").write_text("not copied to a learner\n")
    return folder / "this.ipynb"


def test_every_rule_accepts_a_good_notebook(path: Path) -> None:
    nb = book(
        text("# Title\n[on](#Title) [out](<other one.ipynb#Add-up:-all_reduce>)"),
        text('<a id="here"></a>\n\n[data](../data/digits.csv), [here](#here), [site](https://x.y)'),
        text("![a](attachment:a.png)", attachments={"a.png": {"image/png": "AA=="}}),
        code("lab = labkit.start(4)", tags=("nbval-ignore-output",)),
        code("print(1)", prints("1\n"), shows(image_png="/tmp/AAAA", text_plain="<Figure>")),
        text("The tests skip this cell: it needs two GPUs."),
        code("gpu()", tags=("nbval-skip",)),
        code("lab.stop()", prints("work/notebooks/x ../work/y ~/work/z\n")),
    )
    assert {name: rule(nb, path) for name, rule in RULES.items()} == {name: [] for name in RULES}


def test_counts(path: Path) -> None:
    rule = RULES["was_run_once_in_order"]
    nb = book(code(), text("t"), code(), code())
    nb.cells[2].execution_count = None
    nb.cells[3].execution_count = 7
    assert rule(nb, path) == [
        "cell 3 has execution count None, not 2",
        "cell 4 has execution count 7, not 3",
    ]


@pytest.mark.parametrize(
    "mimes",
    [
        {"application_vnd.jupyter.widget-view+json": "{}"},
        {"application_javascript": "alert(1)"},
        {"text_html": "<b>x</b><SCRIPT>alert(1)</SCRIPT>"},
    ],
)
def test_widgets_and_scripts(path: Path, mimes: dict[str, str]) -> None:
    rule = RULES["stores_no_widget_or_script"]
    assert len(rule(book(code("x", shows(**mimes))), path)) == 1


def test_widget_state(path: Path) -> None:
    nb = book()
    nb.metadata.widgets = {}
    assert RULES["stores_no_widget_or_script"](nb, path) == ["metadata.widgets is stored"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("[x](missing.ipynb)", "does not exist"),
        ("![x](pictures/missing.png)", "does not exist"),
        ('<img src="missing.png">', "does not exist"),
        ('text <a href="missing.ipynb">x</a>', "does not exist"),
        ("| a |\n|---|\n| [x](missing.ipynb) |", "does not exist"),
        ("[x][ref]\n\n[ref]: missing.ipynb", "does not exist"),
        ("[x](#title)", "names a heading that does not exist"),
        ("[x](this.ipynb#title)", "names a heading that does not exist"),
        ("[x](other%20one.ipynb#Title)", "names a heading that does not exist"),
        ('<a name="old"></a> [x](#old)', "names a heading that does not exist"),
        ("![x](attachment:missing.png)", "is not attached to the cell"),
        ("[x](../README.md)", "leads out of notebooks/ and data/"),
        ("[x](/notebooks/this.ipynb)", "leads out of notebooks/ and data/"),
    ],
)
def test_links(path: Path, source: str, problem: str) -> None:
    found = RULES["links_lead_somewhere"](book(text("# Title"), text(source)), path)
    assert len(found) == 1
    assert found[0].startswith("cell 2: ")
    assert found[0].endswith(problem)


def test_a_link_in_a_code_block_is_no_link(path: Path) -> None:
    nb = book(text("```\n[x](missing.ipynb)\n```\nand `[x](missing.ipynb)`"))
    assert RULES["links_lead_somewhere"](nb, path) == []


@pytest.mark.parametrize("before", [[], [text("Now run this.")], [text("We skip it"), code()]])
def test_skips(path: Path, before: list[NotebookNode]) -> None:
    rule = RULES["explains_what_is_skipped"]
    assert len(rule(book(*before, code("x", tags=("nbval-skip",))), path)) == 1
    assert len(rule(book(*before, code("# NBVAL_SKIP\nx")), path)) == 1


def test_ignored_output(path: Path) -> None:
    rule = RULES["checks_what_it_ignores"]
    ignored = code("x", prints("1\n"), tags=("nbval-ignore-output",))
    silent, picture = code("y = 1"), code("plot()", shows(image_png="AAAA"))
    checked = code("z", prints("1\n"))
    assert len(rule(book(ignored), path)) == 1
    assert len(rule(book(ignored, silent, picture, ignored, checked), path)) == 1
    assert rule(book(ignored, text("t"), silent, picture, checked), path) == []


def test_length(path: Path) -> None:
    rule = RULES["is_short"]
    assert rule(book(text("a\n" * 25), code("a\n" * 25)), path) == []
    assert len(rule(book(text("a\n" * 26), code("a\n" * 26)), path)) == 2
    assert rule(book(*[text("a")] * 60), path) == []
    assert rule(book(*[text("a")] * 61), path) == ["it has 61 cells, not ≤ 60"]


def test_tags(path: Path) -> None:
    rule = RULES["has_tags_that_somebody_reads"]
    assert rule(book(code("x", tags=("costly", "nbval-ignore-output"))), path) == []
    assert len(rule(book(code("x", tags=("costlynbval-ignore-output",))), path)) == 1


def test_size(path: Path) -> None:
    rule = RULES["stores_little"]
    assert rule(book(code("x", prints("a" * 300_000))), path) == []
    assert len(rule(book(code("x", prints("a" * 300_000), prints("b" * 100_000))), path)) == 1


@pytest.mark.parametrize(
    "output",
    [
        prints("see /tmp/ipykernel_12/3.py:1: Warning"),
        prints("\x1b[31m/home/ada/x\x1b[0m"),
        prints("file:///root/x"),
        shows(text_html="<a href='/work/main/x'>"),
        shows(**{"image_svg+xml": "<svg>/tmp/a</svg>"}),
        nbformat.v4.new_output("error", ename="E", evalue="v", traceback=["File /home/ada/x.py"]),
    ],
)
def test_machine_paths(path: Path, output: NotebookNode) -> None:
    assert len(RULES["stores_no_machine_path"](book(code("x", output)), path)) == 1


def test_stop(path: Path) -> None:
    rule = RULES["stops_its_lab"]
    start, stop = code("lab = labkit.start(4)"), code("lab.stop()")
    assert rule(book(code("1")), path) == []
    assert rule(book(start, start, stop), path) == []
    assert rule(book(code("with labkit.start(2) as lab:\n    pass")), path) == []
    assert len(rule(book(start), path)) == 1
    assert len(rule(book(start, stop, start), path)) == 1
    assert len(rule(book(start, code("# lab.stop()")), path)) == 1


def test_kernel(path: Path) -> None:
    nb = book()
    nb.metadata.kernelspec.name = "conda-env-mine"
    assert len(RULES["uses_the_python3_kernel"](nb, path)) == 1
    del nb.metadata["kernelspec"]
    assert len(RULES["uses_the_python3_kernel"](nb, path)) == 1


def solved(number: str) -> list[NotebookNode]:
    """Return the cells of one exercise of notebook 04."""
    return [
        text(f"**Exercise {number}: Add up.**"),
        code("def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION"),
        code(f'labkit.check("{number}")', prints(f"{number} passed.\n")),
    ]


FOUR = [cell for k in range(1, 5) for cell in solved(f"04-{k}")]


def test_exercises(path: Path) -> None:
    rule = RULES["has_exercises_that_can_be_checked"]
    path = path.with_name("04_ring.ipynb")
    assert rule(book(text("none"), code()), path) == []
    assert rule(book(*FOUR), path) == []
    assert rule(book(*FOUR, *solved("04-5")), path) == []


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        (FOUR[:-6], "its exercises are"),
        ([*FOUR, *solved("04-7")], "its exercises are"),
        ([*FOUR[:-3], *solved("03-4")], "its exercises are"),
        ([*FOUR[:-3], *FOUR[-2:]], "cell 11 checks 04-4, of which no text tells"),
        ([*FOUR[:-2], FOUR[-1]], "cell 11 checks 04-4, which no cell before it solves"),
        ([*FOUR, FOUR[1]], "cell 13 has a solution that nothing checks"),
        ([*FOUR[:-1], code('labkit.check("04-4")', prints("no"))], "cell 12 stores no passed"),
        ([*FOUR[:1], code("### BEGIN SOLUTION\n1"), *FOUR[2:]], "cell 2: it needs one line"),
    ],
)
def test_exercises_that_nobody_could_check(
    path: Path, cells: list[NotebookNode], problem: str
) -> None:
    rule = RULES["has_exercises_that_can_be_checked"]
    (found,) = rule(book(*cells), path.with_name("04_ring.ipynb"))
    assert found.startswith(problem)


STUB = 'def f(x: int) -> int:\n    """Add one.\n\n    >>> f(1)\n    2\n    """\n'
STUB += "    ### BEGIN SOLUTION\n    return x + 1\n    ### END SOLUTION\n"
PAGE = "[`dist.gather`](https://docs.pytorch.org/docs/stable/distributed.html#dist.gather)"


@pytest.mark.parametrize(
    ("rule", "good", "old", "new"),
    [
        ("links_its_calls", [text(PAGE), code("%%px\ndist.gather(x)")], "gather(", "scatter("),
        ("specifies_its_stubs", [code(STUB)], "x: int", "x"),
        ("specifies_its_stubs", [code(STUB)], " -> int", ""),
        ("specifies_its_stubs", [code(STUB)], ">>> f(1)", "f(1)"),
        ("is_plain_english", [text("One message per rank.")], "per rank", "a rank"),
        ("is_plain_english", [text("One message per rank.")], "per rank", "another one than that"),
    ],
)  # fmt: skip
def test_what_a_reader_looks_up_and_stumbles_over(
    path: Path, rule: str, good: list[NotebookNode], old: str, new: str
) -> None:
    assert RULES[rule](book(*good), path) == []
    cells = copy.deepcopy(good)
    cells[-1].source = cells[-1].source.replace(old, new)
    assert RULES[rule](book(*cells), path)
