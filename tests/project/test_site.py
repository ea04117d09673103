"""The course's pages: built without a warning, every link leads somewhere, nothing is lost.

They are built once, as ``make site`` does, but with links into a repository on the web. A page is
read with the standard library: LinkChecker needs minutes for the same links.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path, PurePath
from urllib.parse import unquote, urljoin, urlsplit

import nbformat
import pytest
from sphinx.util.inventory import InventoryFile

import labkit
from labkit.base.rank_names import RANK_COLOURS
from labkit.course import catalogue, datasets
from labkit.course.edition import has_solution
from tests.browser import chromium
from tests.support.conda_versions import ROOT
from tests.support.system import needs

pytestmark = pytest.mark.slow

REPOSITORY = "https://example.org/blob/main"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
#: Width of a phone, in CSS pixels.
PHONE = 390
#: A figure could be wider than its page, where the cell around it scrolls.
WIDEST = """Math.max(document.scrollingElement.scrollWidth,
  ...Array.from(document.images, image => image.offsetWidth))"""


class Page(HTMLParser):
    """What a page names: its anchors, links, images and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.loaded: list[str] = []
        self.text = path.read_text("utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.anchors.add(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag == "img":
            self.images.append(given)
        loads = given.get("href") if tag == "link" else given.get("src")
        if loads:
            self.loaded.append(loads)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; what Sphinx warns of is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    command += ["--doctree-dir", str(folder / "trees"), "--conf-dir", ".site", ".", "pages"]
    command[-1] = str(folder / "pages")
    environment = {**os.environ, "SITE_REPOSITORY": REPOSITORY}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    return folder / "pages"


@cache
def read(path: Path) -> Page:
    return Page(path)


def pages(site: Path) -> Iterator[tuple[str, Page]]:
    """Yield the address of each page in the site, and the page."""
    for path in sorted(site.rglob("*.html")):
        if "_static" not in path.parts:
            yield path.relative_to(site).as_posix(), read(path)


def page_of(site: Path, notebook: Path) -> Page:
    return read(site / "notebooks" / f"{notebook.stem}.html")


def test_every_link_leads_to_a_page_and_a_place_on_it(site: Path) -> None:
    lost = []
    for name, page in pages(site):
        for link in page.links:
            parts = urlsplit(urljoin(name, link))
            if link.startswith(REPOSITORY):
                found = (ROOT / link.removeprefix(REPOSITORY).lstrip("/")).exists()
            elif parts.scheme:
                continue
            else:
                target = site / unquote(parts.path)
                found = target.is_file()
                if found and target.suffix == ".html" and parts.fragment:
                    found = unquote(parts.fragment) in read(target).anchors
            if not found:
                lost.append((name, link))
    assert lost == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = {(name, link) for name, page in pages(site) for link in page.loaded}
    assert loaded
    assert {(n, link) for n, link in loaded if urlsplit(link).scheme not in ("", "data")} == set()


def test_every_image_has_an_alt_text(site: Path) -> None:
    # Where there is none, docutils writes the file's name.
    bare = [
        (name, image["src"])
        for name, page in pages(site)
        for image in page.images
        if not image.get("alt") or str(image["src"]).endswith(PurePath(str(image["alt"])).name)
    ]
    assert bare == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_its_figures_and_folds_its_solutions(site: Path, path: Path) -> None:
    cells = [c for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    stored = [
        output.metadata["image/png"]["alt"].split()
        for cell in cells
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    page = page_of(site, path)
    shown = [str(image["alt"]).split() for image in page.images]
    assert [alt for alt in stored if alt not in shown] == []
    solutions = sum(has_solution(cell.source) for cell in cells)
    assert page.text.count(">Show one solution<") == solutions
    assert "BEGIN SOLUTION" not in page.text
    assert "BEGIN SOLUTION" not in (site / "_sources/notebooks" / path.name).read_text("utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_links_words_of_the_glossary_once(site: Path, path: Path) -> None:
    linked = [link for link in page_of(site, path).links if link.startswith("GLOSSARY.html#word-")]
    assert len(linked) > 2
    assert sorted(linked) == sorted(set(linked))


def test_the_contents_are_those_of_the_course_in_its_order(site: Path) -> None:
    course = (ROOT / "notebooks/README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(.+?)\]\((.+?)\.ipynb\)", course, re.MULTILINE)
    assert sorted(stem for _, stem in rows) == [path.stem for path in NOTEBOOKS]
    contents = re.search(r'<nav class="bd-links.*?</nav>', read(site / "index.html").text, re.S)
    assert contents
    entry = r'href="notebooks/(\d\d_\w+)\.html">\s*(.+?)\s*</a>'
    assert [(title, stem) for stem, title in re.findall(entry, contents[0])] == rows
    following = [
        re.findall(r'<link rel="next"[^>]*href="([^"]*)"', page_of(site, path).text)
        for path in NOTEBOOKS[:-1]
    ]
    assert following == [[f"{path.stem}.html"] for path in NOTEBOOKS[1:]]


def test_the_cards_of_the_parts_say_what_the_course_has() -> None:
    """The numbers of notebooks and exercises are counted, the hours are those of the README."""
    start = (ROOT / ".site/index.md").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    numbers = catalogue.numbers()
    first = re.findall(r"^:link: \.\./notebooks/(\d\d)_", start, re.MULTILINE)
    said = re.findall(r"^(\d+) hours · (\d+) exercises · from \*\*(\d\d) ", start, re.MULTILINE)
    ends = [*(numbers.index(number) for number in first), len(numbers)]
    counted = [
        sum(len(catalogue.ids(number)) for number in numbers[start:end])
        for start, end in pairwise(ends)
    ]
    hours = re.findall(r"^\| \*\*.*\| (\d+) \| (\d+) \|$", readme, re.MULTILINE)
    assert [(hours, exercises, number) for hours, exercises, number in said] == [
        (hours, str(exercises), number)
        for (_, hours), exercises, number in zip(hours, counted, first, strict=True)
    ]
    assert f"{len(numbers)} notebooks" in start.replace("Twenty-one", "21")
    assert f"{sum(counted)} exercises" in start


def test_each_notebook_offers_its_learners_edition(site: Path) -> None:
    for path in NOTEBOOKS:
        (link,) = re.findall(r'<a class="edition[^"]*" href="([^"]*)"', page_of(site, path).text)
        edition = nbformat.read(site / "notebooks" / link, 4)
        assert [cell.source for cell in edition.cells if has_solution(cell.source)] == []
        assert [cell for cell in edition.cells if cell.get("outputs")] == []


def test_the_search_finds_a_word_of_a_notebook(site: Path) -> None:
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip(");\n"))
    places = index["terms"]["no_sync"]
    places = places if isinstance(places, list) else [places]
    assert "notebooks/07_ddp" in {index["docnames"][place] for place in places}
    assert [name for name in index["docnames"] if not (site / f"{name}.html").is_file()] == []


def test_every_public_name_has_an_entry(site: Path) -> None:
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, name: name)
    known = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    public = {f"labkit.{name}" for name in labkit.__all__}
    for module, name in (
        (labkit.figures, "figures"),
        (labkit.hosts, "hosts"),
        (datasets, "datasets"),
    ):
        public |= {f"labkit.{name}.{own}" for own in module.__all__}
    methods = {name for name in vars(labkit.Lab) if not name.startswith("_")} - {"check_ranks"}
    public |= {f"labkit.Lab.{name}" for name in methods}
    assert sorted(public - known) == []


def test_the_style_sheet_has_the_colours_of_ranks() -> None:
    style = (ROOT / ".site/static/labkit.css").read_text()
    assert tuple(re.findall(r"-C20\d\] \{ --rank: (#\w+) \}", style)) == RANK_COLOURS


@needs("chromium")
def test_no_page_or_figure_is_wider_than_a_phone(site: Path) -> None:
    wide = {}
    with chromium.chromium() as browser, chromium.window(browser, PHONE, 844) as window:
        tab = window.new_page()
        for name, _ in pages(site):
            tab.goto((site / name).as_uri(), wait_until="domcontentloaded")
            width = tab.evaluate(WIDEST)
            if width > PHONE:
                wide[name] = width
    assert wide == {}
