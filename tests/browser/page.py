"""Drive one notebook in JupyterLab: run cells, read what the page shows, save.

Cells are numbered from 0, text cells included. Every wait has a bound.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from playwright.sync_api import BrowserContext, FloatRect, Locator, Page, expect

from tests.support.conda_versions import ROOT
from tests.support.events import until

#: Where tests keep what their pages showed.
KEPT = ROOT / "build" / "browser"
OPEN_SECONDS = 120
CELL_SECONDS = 120

#: The kernel's light says idle before it is connected; what is run then is lost.
READY = """() => {
  const panel = globalThis.jupyterapp?.shell.currentWidget;
  return panel?.context?.isReady && panel.sessionContext.isReady
    && panel.sessionContext.session?.kernel?.status === 'idle'
    && panel.content.widgets.every(cell => cell.isAttached);
}"""
SAVED = "() => !jupyterapp.shell.currentWidget.context.model.dirty"
APPEND = """code => {
  const notebook = jupyterapp.shell.currentWidget.content, model = notebook.model.sharedModel;
  const at = model.cells.length;
  model.insertCell(at, {cell_type: 'code', source: code, metadata: {}});
  return at;
}"""
KINDS = """at => {
  const {outputs} = jupyterapp.shell.currentWidget.content.widgets[at].model;
  return Array.from({length: outputs.length}, (_, i) => outputs.get(i).toJSON())
    .map(output => output.name ?? output.output_type);
}"""
SOURCES = """() => jupyterapp.shell.currentWidget.content.widgets
  .map(cell => cell.model.sharedModel.source)"""
CHOSEN = "() => jupyterapp.shell.currentWidget.content.activeCellIndex"
#: A cell that has run before has a number already; so has one of a stored notebook. Takes it from
#: a cell, the chosen one if none is named; returns the cell's number, and whether it is of code.
FORGET = """at => {
  const notebook = jupyterapp.shell.currentWidget.content;
  at ??= notebook.activeCellIndex;
  const {model} = notebook.widgets[at];
  if (model.type === 'code') model.executionCount = null;
  return [at, model.type === 'code'];
}"""
ACTIVATE = "at => { jupyterapp.shell.currentWidget.content.activeCellIndex = at; }"
#: Keeps the neighbours of a cell out of its picture.
ALONE = ".jp-Notebook .jp-Cell:not(.alone) { visibility: hidden; }"
#: Height of what is around the cells: menus, tabs, status line.
FRAME = 200
#: What a picture of cells shows around them.
MARGIN = 8


class NotebookPage:
    """A notebook that is open in a browser.

    Parameters
    ----------
    context
        The browser's window.
    address
        Of the notebook in JupyterLab, token included.
    file
        Where the server stores it.
    """

    def __init__(self, context: BrowserContext, address: str, file: Path) -> None:
        self.file = file
        self.page: Page = context.new_page()
        self.script_errors: list[str] = []
        self.page.on("pageerror", lambda error: self.script_errors.append(str(error)))
        self.page.goto(address)
        self._wait_ready()

    def close(self) -> None:
        """Close the page; the kernel goes on."""
        self.page.close()

    def reload(self) -> None:
        """Load the page again, as after closing and opening the browser."""
        self.page.reload()
        self._wait_ready()

    def _wait_ready(self) -> None:
        self.page.wait_for_function(READY, timeout=OPEN_SECONDS * 1000)

    # -- what is in the page ----------------------------------------------------------------

    def cells(self) -> Locator:
        """Return all cells."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")

    def cell(self, at: int) -> Locator:
        """Return one cell."""
        return self.cells().nth(at)

    def sources(self) -> list[str]:
        """Return the source of every cell as it is in the page now."""
        sources: list[str] = self.page.evaluate(SOURCES)
        return sources

    def chosen(self) -> int:
        """Return the number of the chosen cell."""
        return int(self.page.evaluate(CHOSEN))

    def code_cells(self) -> list[int]:
        """List the numbers of the code cells."""
        kinds = self.cells().evaluate_all(
            "cells => cells.map(cell => cell.classList.contains('jp-CodeCell'))"
        )
        return [at for at, is_code in enumerate(kinds) if is_code]

    def prompt(self, at: int) -> str:
        """Return a code cell's prompt: ``[ ]:``, ``[*]:`` or ``[3]:``."""
        return self._prompt(at).inner_text().strip()

    def _prompt(self, at: int) -> Locator:
        return self.cell(at).locator(".jp-InputArea-prompt")

    def text(self, at: int) -> str:
        """Return the text that a cell's outputs show."""
        return "\n".join(self.cell(at).locator(".jp-OutputArea-output").all_inner_texts())

    def errors(self, at: int) -> list[str]:
        """Return the error blocks of a cell."""
        return self._outputs(at, "error")

    def stderr(self, at: int) -> list[str]:
        """Return the blocks of a cell that came through stderr."""
        return self._outputs(at, "stderr")

    def pictures(self, at: int) -> int:
        """Count the pictures that a cell shows."""
        return self.cell(at).locator(".jp-OutputArea-output img, .jp-OutputArea-output svg").count()

    def alt_texts(self, at: int) -> list[str]:
        """List the alt texts of the pictures that a cell shows."""
        return (
            self.cell(at)
            .locator(".jp-OutputArea-output img")
            .evaluate_all("pictures => pictures.map(picture => picture.alt)")
        )

    def broken_pictures(self) -> list[str]:
        """List the addresses of pictures that could not be loaded, those of text cells included."""
        return (
            self.cells()
            .locator("img")
            .evaluate_all("pictures => pictures.filter(p => !p.naturalWidth).map(p => p.src)")
        )

    def view(self) -> list[tuple[str, str, int]]:
        """Return prompt, text and number of pictures of every code cell."""
        return [(self.prompt(at), self.text(at), self.pictures(at)) for at in self.code_cells()]

    def _outputs(self, at: int, kind: str) -> list[str]:
        # The page gives both the same mime type; the notebook's model knows them apart.
        kinds = self.page.evaluate(KINDS, at)
        texts = self.cell(at).locator(".jp-OutputArea-output").all_inner_texts()
        return [text for text, found in zip(texts, kinds, strict=True) if found == kind]

    # -- what a learner does ----------------------------------------------------------------

    def append(self, code: str) -> int:
        """Add a code cell at the end; return its number."""
        at = self.page.evaluate(APPEND, code)
        expect(self.cells()).to_have_count(at + 1)
        return at

    def choose(self, at: int) -> None:
        """Choose a cell with a click beside its text, outside of its editor."""
        self.cell(at).locator(".jp-InputPrompt").click()
        self.page.wait_for_function(f"at => ({CHOSEN})() === at", arg=at)

    def insert_below(self, at: int, code: str) -> int:
        """Add a cell below one with the key B and write into it; return its number."""
        count = self.cells().count()
        self.choose(at)
        self.page.keyboard.press("b")
        expect(self.cells()).to_have_count(count + 1)
        self.write(at + 1, code)
        return at + 1

    def write(self, at: int, code: str) -> None:
        """Write into a cell, in the place of what it has."""
        self.cell(at).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(code)
        wait = f"([at, code]) => ({SOURCES})()[at] === code"
        self.page.wait_for_function(wait, arg=[at, code])

    def step(self, seconds: float = CELL_SECONDS) -> int:
        """Run the chosen cell with Shift+Enter, which goes on to the next; wait until it has
        ended, if it is one of code; return its number."""
        at, is_code = self.page.evaluate(FORGET)
        self.page.keyboard.press("Shift+Enter")
        self.page.wait_for_function(f"at => ({CHOSEN})() === at", arg=at + 1)
        if is_code:
            self.wait_ended(at, seconds)
        return int(at)

    def start(self, at: int) -> None:
        """Run a cell with Ctrl+Enter, which stays on it, and do not wait for it."""
        self.page.evaluate(FORGET, at)
        self.cell(at).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")

    def run(self, at: int, seconds: float = CELL_SECONDS) -> str:
        """Run a cell, wait until it has ended, return its text."""
        self.start(at)
        self.wait_ended(at, seconds)
        return self.text(at)

    def run_new(self, code: str, seconds: float = CELL_SECONDS) -> int:
        """Add a cell, run it, wait until it has ended; return its number."""
        at = self.append(code)
        self.run(at, seconds)
        return at

    def run_all(self) -> None:
        """Choose Run All Cells from the menu; wait until it has begun."""
        last = self.code_cells()[-1]
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        # A notebook is stored with the numbers of its last run.
        expect(self._prompt(last)).to_have_text("[*]:")

    def interrupt(self) -> None:
        """Press the stop button."""
        self.page.locator('[data-command="notebook:interrupt-kernel"]').first.click()

    def answer(self, prompt: str, text: str, seconds: float = CELL_SECONDS) -> None:
        """Type an answer into the input box that has a prompt, once there is one."""
        box = self.page.locator(".jp-Stdin", has_text=prompt).locator("input")
        box.fill(text, timeout=seconds * 1000)
        answered = box.element_handle()
        box.press("Enter")
        answered.wait_for_element_state("hidden")  # it stays for half a second

    def wait_text(self, at: int, pattern: str, seconds: float = CELL_SECONDS) -> None:
        """Wait until a cell's outputs show a text that matches a regular expression."""
        outputs = self.cell(at).locator(".jp-Cell-outputArea")
        expect(outputs).to_have_text(re.compile(pattern, re.DOTALL), timeout=seconds * 1000)

    def wait_ended(self, at: int, seconds: float = CELL_SECONDS) -> None:
        """Wait until a cell's prompt is a number."""
        expect(self._prompt(at)).to_have_text(re.compile(r"^\[\d+\]:$"), timeout=seconds * 1000)

    def save(self) -> NotebookNode:
        """Save with Ctrl+S; return the notebook as it is stored now."""
        self.page.keyboard.press("Escape")
        before = self.file.stat().st_mtime_ns
        self.page.keyboard.press("Control+s")
        # It is emptied, then written at once.
        until(lambda: self.file.stat().st_mtime_ns != before and self.file.stat().st_size)
        self.page.wait_for_function(SAVED)
        return self.stored()

    def stored(self) -> NotebookNode:
        """Return the notebook as it was saved last."""
        return nbformat.read(self.file, as_version=4)

    # -- how it looks -----------------------------------------------------------------------

    def hide_sidebar(self) -> None:
        """Fold away the file browser."""
        self.page.evaluate("() => { jupyterapp.shell.collapseLeft(); }")
        self.page.wait_for_function("() => jupyterapp.shell.leftCollapsed")

    def show(self, top: int, chosen: int) -> None:
        """Scroll until a cell is at the top, and choose one."""
        self.page.evaluate(ACTIVATE, chosen)
        self.cell(top).evaluate("cell => { cell.scrollIntoView({block: 'start'}); }")

    def choose_theme(self, name: str) -> None:
        """Choose a theme of JupyterLab; wait until the page has its colours."""
        self.page.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", name
        )
        self.page.locator(f'body[data-jp-theme-name="{name}"]').wait_for(state="attached")

    def choose_quietly(self, at: int) -> None:
        """Choose a cell without a click, which would scroll to it or show a cursor."""
        self.page.evaluate(ACTIVATE, at)
        self.page.mouse.move(0, 0)

    @contextlib.contextmanager
    def alone(self, cells: Sequence[Locator]) -> Iterator[None]:
        """Hide all other cells."""
        style = self.page.add_style_tag(content=ALONE)
        for cell in cells:
            cell.evaluate("cell => { cell.classList.add('alone'); }")
        try:
            yield
        finally:
            style.evaluate("style => { style.remove(); }")
            for cell in cells:
                cell.evaluate("cell => { cell.classList.remove('alone'); }")

    def box_of_cells(self, cells: Sequence[Locator]) -> FloatRect:
        """Return where some cells are in the page, with a margin."""
        boxes = [cell.bounding_box() for cell in (cells[0], cells[-1])]
        first, last = (box for box in boxes if box is not None)
        return {
            "x": max(first["x"] - MARGIN, 0),
            "y": max(first["y"] - MARGIN, 0),
            "width": first["width"] + 2 * MARGIN,
            "height": last["y"] + last["height"] - first["y"] + 2 * MARGIN,
        }

    def picture_of_cells(self, first: int, last: int) -> bytes:
        """Return a PNG of some cells with their outputs, as they look when another is chosen."""
        self.choose_quietly(0 if first else last + 1)
        cells = [self.cell(at) for at in range(first, last + 1)]
        size = self.page.viewport_size
        height = sum(int(cell.evaluate("cell => cell.scrollHeight")) for cell in cells)
        if size is not None and height + FRAME > size["height"]:
            self.page.set_viewport_size({"width": size["width"], "height": height + FRAME})
        cells[len(cells) // 2].evaluate("cell => { cell.scrollIntoView({block: 'center'}); }")
        with self.alone(cells):
            return self.picture(self.box_of_cells(cells))

    def picture(self, clip: FloatRect | None = None) -> bytes:
        """Return a PNG of the window, or of a part of it."""
        return self.page.screenshot(clip=clip, animations="disabled")

    def keep(self, name: str) -> None:
        """Keep a picture of the whole window as ``build/browser/NAME.png``."""
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{name}.png").write_bytes(self.picture())
