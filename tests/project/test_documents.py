"""What the documents name is there: paths, modules, make targets, links, contracts, versions."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

import labkit
from tests.bench.__main__ import NAMES
from tests.support.conda_versions import ROOT

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/*.md")]
    + [ROOT / folder / "README.md" for folder in ("tests", "notebooks", "data")]
    + [ROOT / "notebooks/GLOSSARY.md"]
    + [*(ROOT / "labkit").rglob("*.md"), *(ROOT / "tests/gpu").rglob("*.md")]
)
FOLDERS = ("labkit", "docs", "tests", "notebooks", "data", ".ci", ".github", ".site")
#: Endings by which a word without a folder is taken for a file's name.
ENDINGS = (".py", ".md", ".toml", ".yml", ".yaml", ".lock", ".ipynb", ".cff", ".sh")
#: What stands for a name: nbNN, exK, NAME, …, *, notebook.ipynb.
PLACEHOLDER = re.compile(r"NN|exK|NAME|…|\*|<|\{|^notebook\.ipynb$")
#: Made by a command, or the learner's own: `make lab`, `labkit run`, `make bench`.
MADE = re.compile(r"^(build|work|\.venv|full)/|^data/full|executed\.ipynb$|^bench\.json$")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()


@cache
def tokens(path: Path) -> list[Token]:
    """Return all tokens of a document, those inside lines of text too."""
    parsed = MarkdownIt().enable("table").parse(path.read_text())
    return [inner for token in parsed for inner in (token, *(token.children or ()))]


def code(path: Path) -> list[str]:
    """Return what stands in backticks, and the lines of fenced blocks."""
    spans = [t.content for t in tokens(path) if t.type == "code_inline"]
    fences = [line for t in tokens(path) if t.type == "fence" for line in t.content.splitlines()]
    return spans + fences


@cache
def names_of_tests() -> set[str]:
    sources = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.M)}


def is_there(word: str) -> bool:
    """Tell whether a word that names a file or folder of this project names one that exists."""
    name = re.sub(r"(::.*|#.*|:\d+)$", "", word)
    if PLACEHOLDER.search(name) or MADE.search(name):
        return True
    if name.startswith("test_") and not name.endswith(ENDINGS):
        return name in names_of_tests()
    if "/" in name:
        return (ROOT / name).exists()
    return (ROOT / name).exists() or any(
        found for folder in FOLDERS for found in (ROOT / folder).rglob(name)
    )


def names_a_path(word: str) -> bool:
    if not re.fullmatch(r"[\w.@/=:#*…{}<>-]+", word) or "://" in word:
        return False
    folder = word.removeprefix("./").partition("/")[0]
    return (
        ("/" in word and folder in FOLDERS)
        or ("/" not in word and word.endswith(ENDINGS))
        or word.startswith("test_")
    )


def resolves(dotted: str) -> bool:
    """Tell whether a dotted name is a module, or something that a module has."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        if spec is None:
            continue
        found: object = importlib.import_module(name) if end < len(parts) else None
        for attribute in parts[end:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def offenders(paths: Iterable[Path], find: Callable[[Path], Iterable[str]]) -> list[str]:
    """Return what ``find`` has found in files, each with its file."""
    return [f"{path.relative_to(ROOT)}: {what}" for path in paths for what in find(path)]


def test_every_path_in_code_exists():
    def missing(path: Path) -> list[str]:
        words = [word.strip("\"'(),;:") for line in code(path) for word in line.split()]
        return [w for w in words if names_a_path(w) and not is_there(w)]

    assert offenders(DOCUMENTS, missing) == []


def test_every_module_and_name_of_it_exists():
    def missing(path: Path) -> list[str]:
        text = "\n".join(code(path))
        dotted = set(re.findall(r"(?<![\w./-])(?:labkit|tests)(?:\.[A-Za-z_]\w*)+", text))
        files = {name for name in dotted if name.endswith(("md", "yml", "json", "log"))}
        return sorted(name for name in dotted - files if not resolves(name))

    assert offenders(DOCUMENTS, missing) == []


def test_every_make_target_exists():
    known = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.M))

    def unknown(path: Path) -> list[str]:
        matches = (re.match(r"\$? ?make ([a-z][a-z-]*)", text) for text in code(path))
        return sorted({match[1] for match in matches if match} - known)

    assert offenders(DOCUMENTS, unknown) == []


def test_no_merge_is_left_half_done():
    mark = re.compile(r"^(?:<{7}|={7}|>{7})(?: .*)?$", re.M)
    assert offenders(DOCUMENTS, lambda path: mark.findall(path.read_text())) == []


def headings(path: Path) -> set[str]:
    """Return the anchors that GitHub gives a document's headings."""
    found = tokens(path)
    titles = [found[i + 1].content for i, token in enumerate(found) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def lost_links(path: Path) -> list[str]:
    """Return the relative links of a document that lead nowhere."""
    links = [
        str(t.attrGet("href") or t.attrGet("src"))
        for t in tokens(path)
        if t.type in ("link_open", "image")
    ]
    lost = []
    for link in links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = path.parent / unquote(parts.path) if parts.path else path
        if not target.exists() or (
            parts.fragment and target.suffix == ".md" and parts.fragment not in headings(target)
        ):
            lost.append(link)
    return lost


def test_every_relative_link_leads_somewhere():
    assert offenders(DOCUMENTS, lost_links) == []


#: A path of this project in a comment, a docstring or a setting.
IN_CODE = re.compile(r"(?<![\w./~+-])(?:labkit|tests)/[\w/.-]*\w|\b[A-Z]{4,}\.md\b")


def test_every_path_in_the_sources_exists():
    def missing(path: Path) -> list[str]:
        lines = path.read_text().splitlines()
        comments = [line for line in lines if "#" in line or not re.search(r"[=(\"']", line)]
        words = [word for line in comments for word in IN_CODE.findall(line)]
        return [word for word in words if not is_there(word)]

    settings = [ROOT / name for name in ("pyproject.toml", "Makefile", "tests/ruff_notebooks.toml")]
    sources = [*(ROOT / "labkit").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert offenders(sorted([*sources, *settings]), missing) == []


# -- the documents agree with what they describe ------------------------------------------------


def rows(path: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, without its head."""
    section = path.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_walls_of_the_architecture_are_those_of_import_linter():
    named = [row[0] for row in rows(ROOT / "ARCHITECTURE.md", "## The walls")]
    assert named == [
        contract["name"] for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
    ]


def test_the_tree_of_the_architecture_has_every_folder():
    named = [row[0].strip("`") for row in rows(ROOT / "ARCHITECTURE.md", "## The tree")]
    there = [f"labkit/{p.parent.name}/" for p in (ROOT / "labkit").glob("*/__init__.py")]
    assert sorted(name for name in named if name.startswith("labkit/")) == sorted(there)


def test_the_tests_readme_has_every_folder_of_tests():
    text = (ROOT / "tests/README.md").read_text()
    there = [p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and any(p.glob("*.py"))]
    assert [name for name in there if f"| `tests/{name}/` |" not in text] == []


def test_the_programs_that_break_the_theory_are_in_the_tables_of_the_tests():
    named = rows(ROOT / "docs/THEORY.md", "## Assumptions, and what breaks them")
    programs = [name for row in named for name in re.findall(r"“(.+?)”", row[-1])]
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert len(programs) > 20
    assert [name for name in programs if f'"{name}"' not in sources] == []


def test_the_benchmarks_have_a_row_for_each_name_that_can_be_measured():
    named = rows(ROOT / "docs/BENCHMARKS.md", "## labkit")
    assert [name for row in named for name in re.findall(r"`([\w-]+)`", row[0])] == NAMES


def test_one_version_stands_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (\d\S*) - (\d{4}-\d\d-\d\d)$", changes, re.M)
    version = labkit.__version__
    newest, date = releases[0] if releases else (version, None)
    assert "version" in PYPROJECT["project"]["dynamic"]  # from labkit/__init__.py
    assert version == citation["version"] == newest
    assert citation.get("date-released") == date
    assert citation["license"] == PYPROJECT["project"]["license"]


def test_pre_commit_calls_the_tools_of_the_environment_and_fetches_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    programs = {hook["entry"].split()[0] for hook in hooks}
    assert {program.rpartition("/")[0] for program in programs} == {".venv/bin"}
    lint = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0]
    assert set(re.findall(r"\$\(BIN\)/([\w-]+)", lint)) <= {p.rpartition("/")[2] for p in programs}


@pytest.mark.parametrize("name", ["bug", "course", "feature"])
def test_a_form_for_issues_is_one_that_github_accepts(name):
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert form["name"]
    assert form["description"]
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    for field in form["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes")
        assert field["attributes"]["label"]
    assert any(field.get("validations", {}).get("required") for field in form["body"])
