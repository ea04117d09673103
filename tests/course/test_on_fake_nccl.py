"""Every notebook shows the same where calls return at once, as NCCL's do.

Each is executed on gloo with the semantics of NCCL (``tests.support.fake_nccl``), and what its
compared cells show is compared with what is stored. That proves nothing about NCCL itself; it finds
a wait that nobody makes, and a None that nobody expects. What rightly differs stands in
``OTHERWISE`` and ``PERHAPS``, each cell with its reason. On one rank, as one GPU gives, the outputs
are others, and cells that name rank 2 fail: there they are compared with those of one rank without
the semantics.

``make test`` runs the notebooks of ``SHARE``; ``LABKIT_FAKE_SLURM=all`` runs all of them.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from labkit.tools import run_notebook
from tests.support.compare import outputs, shown, steady_text
from tests.support.notebook_rules import nbval_options
from tests.support.observed import SEEN
from tests.support.on_fake_nccl import MODULE
from tests.support.on_fake_nccl import VARIABLE as SEMANTICS
from tests.support.unwatched import Unwatched

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
VARIABLE = "LABKIT_FAKE_SLURM"
#: Seconds that a cell may take.
LIMIT = 600.0
#: Notebooks, by their numbers, that use the group most; those that are run on one rank.
SHARE = ("00", "01", "02", "03", "05", "06", "07", "08", "11", "13", "23", "24", "25", "26")
ALONE = ("00",)

#: What IPython runs at the start of each kernel: the semantics come into the warm process.
STARTUP = f"""
from labkit.notebook import startup as _startup
_startup.PRELOAD = (*_startup.PRELOAD, {MODULE!r})
del _startup
"""

BEHIND = "the fake NCCL waits where a tensor is used next; a GPU would queue that, up to the end"
BUFFERED = "tensors on the CPU go by gloo; the fake NCCL buffers such small messages"
#: Executes a notebook.
Execute = Callable[..., NotebookNode]
#: Notebook -> cell (its id) -> why it shows something else there.
OTHERWISE: dict[str, dict[str, str]] = {
    "01_point_to_point": {
        "h5n06b00": BUFFERED,
        "dec81934": BUFFERED,
        "01victim": BUFFERED,
    },
    "24_collectives_in_depth": {
        "5d1c0b7a": "the fake NCCL waits wherever a tensor is looked at; NCCL's stream would not"
    },
    "05_sync_sgd": {"e63a11c4": BEHIND},
    "13_model_parallel": {"822d928e": BEHIND},
}
#: The same of cells that show something else now and then.
PERHAPS: dict[str, dict[str, str]] = {}


def names(share: tuple[str, ...]) -> list[str]:
    """Return the notebooks of a share, all of them if the variable says so."""
    every = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    if os.environ.get(VARIABLE) == "all":
        return every
    return [name for name in every if name.partition("_")[0] in share]


@pytest.fixture
def execute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Execute:
    """Execute a notebook on gloo with the semantics; return it, with the outputs of this run."""
    folder = tmp_path / "ipython" / "profile_default" / "startup"
    folder.mkdir(parents=True)
    (folder / "00-semantics.py").write_text(STARTUP)
    paths = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])

    def run(name: str, *, ranks: int | None = None, semantics: bool = True) -> NotebookNode:
        nb = run_notebook.read(FOLDER / f"{name}.ipynb")
        failures: list[run_notebook.Failure] = []
        with monkeypatch.context() as setting:
            if semantics:
                setting.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
                setting.setenv("PYTHONPATH", paths)
                setting.setenv(SEMANTICS, "on")
            failure = run_notebook.execute(
                nb, FOLDER, ranks=ranks, timeout=LIMIT, watcher=Unwatched(),
                failed=failures.append if ranks else None,  # to the end, whatever fails
            )  # fmt: skip
        assert failure is None, f"cell {failure.number}:\n{failure.source}\n\n{failure.error}"
        return nb

    return run


def differences(stored: NotebookNode, run: NotebookNode) -> dict[str, str]:
    """Return, by their ids, the compared cells that show something else, and what."""
    found = {}
    for one, other in zip(stored.cells, run.cells, strict=True):
        if one.cell_type != "code" or not nbval_options(one)["check"]:
            continue
        if outputs(one) != outputs(other):
            before, now = shown(one).splitlines(), shown(other).splitlines()
            lines = difflib.unified_diff(before, now, "stored", "on the fake NCCL", lineterm="")
            found[one.id] = "\n".join([one.source, *lines])
    return found


def seen_on_nccl(name: str) -> dict[str, str]:
    """Return what cells of a notebook were seen to show on NCCL, by their ids."""
    return json.loads(SEEN.read_text())["cells"].get(name, {})


def unlike_nccl(name: str, run: NotebookNode) -> list[str]:
    """Return the cells that do not show what they were seen to show on NCCL."""
    texts = {cell.id: steady_text(cell) for cell in run.cells if cell.cell_type == "code"}
    return [
        f"[{id}] on NCCL:\n{text}\nhere:\n{texts[id]}"
        for id, text in seen_on_nccl(name).items()
        if id in texts and texts[id][: len(text)] != text
    ]


@pytest.mark.parametrize("name", names(SHARE))
def test_compared_cells_show_what_is_stored(
    name: str, execute: Callable[..., NotebookNode]
) -> None:
    run = execute(name)
    found = differences(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4), run)
    known = OTHERWISE.get(name, {})
    seen = unlike_nccl(name, run)
    may = {*known, *PERHAPS.get(name, {}), *seen_on_nccl(name)}
    wrong = [f"[{id}] {text}" for id, text in found.items() if id not in may] + seen
    assert not wrong, "\n\n".join(wrong)
    alike = sorted(known.keys() - found.keys())
    assert not alike, f"these cells of OTHERWISE show what is stored: {alike}"


@pytest.mark.parametrize("name", names(ALONE))
def test_compared_cells_show_the_same_on_one_rank(
    name: str, execute: Callable[..., NotebookNode]
) -> None:
    found = differences(execute(name, ranks=1, semantics=False), execute(name, ranks=1))
    assert not found, "\n\n".join(found.values())


def test_a_difference_is_seen() -> None:
    def book(text: str, *tags: str) -> NotebookNode:
        out = nbformat.v4.new_output("stream", text=text)
        cell = nbformat.v4.new_code_cell("print(x)", outputs=[out], metadata={"tags": list(tags)})
        return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("x"), cell])

    assert list(differences(book("1\n"), book("1\n")).values()) == []
    (text,) = differences(book("1\n"), book("2\n")).values()
    assert text.splitlines()[-2:] == ["-1", "+2"]
    assert not differences(book("1\n", "nbval-ignore-output"), book("2\n"))
