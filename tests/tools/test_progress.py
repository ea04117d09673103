"""A learner at work: what a notebook's kernel has noted is there for the next one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from labkit.course import delivery, progress
from labkit.notebook import live
from labkit.notebook.show import plain

SECONDS = 300
WRONG = "%%px\ndef neighbour():\n    return rank + 1"
RIGHT = "%%px\ndef neighbour():\n    return (rank + 1) % world_size"
CHECK = 'labkit.check("00-3")'


def run(folder: Path, *cells: str) -> list[str]:
    """Run cells in a kernel of their own, as a front end does; return what each of them shows."""
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", live.LIVE)}
    manager, client = start_new_kernel(cwd=str(folder), env=environment)
    shown: list[str] = []

    def show(message: dict) -> None:
        content = message["content"]
        text = content.get("text") or content.get("data", {}).get("text/plain", "")
        shown[-1] += plain(text) if message["msg_type"] != "display_data" else ""

    try:
        for cell in cells:
            shown.append("")
            reply = client.execute_interactive(
                cell, allow_stdin=True, stdin_hook=lambda _: None, output_hook=show, timeout=SECONDS
            )
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    return shown


@pytest.mark.slow
def test_a_learner_goes_on_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    folder = delivery.new_course(tmp_path / "work").folder
    begin = "import labkit\nlab = labkit.start(2)"
    told = "Passed so far: {} of 4 in notebook 00"
    _, _, wrong, hint, _, right, again = run(
        folder / "notebooks", begin, WRONG, CHECK, "labkit.hint()", RIGHT, CHECK, "_"
    )
    assert "00-3 not yet." in wrong
    assert told.format(0) in wrong
    assert hint.startswith("Hint")
    assert right.endswith("00-3 passed.\n")  # how far one is was said before
    assert again == right  # the verdict, displayed in a cell of its own
    kept = progress.read(folder)
    entry = kept.exercises["00-3"]
    assert (entry.passed, entry.tries, entry.hints, entry.solution) == (True, 2, 1, False)
    assert list(entry.mistakes.values()) == [1]
    assert kept.notebook == "00_start_here.ipynb"

    # A program that runs the notebook is no learner, and neither is it a restart.
    cells = [new_code_cell(source) for source in (begin, WRONG, CHECK)]
    nb = new_notebook(cells=cells)
    resources = {"metadata": {"path": folder / "notebooks"}}
    NotebookClient(nb, timeout=SECONDS, resources=resources).execute()
    (output,) = nb.cells[-1].outputs
    assert output.output_type == "stream"
    assert "so far" not in output.text
    assert progress.read(folder) == kept

    table, _, _, check = run(
        folder / "notebooks",
        "import labkit\nlabkit.progress()",
        "lab = labkit.start(2)",
        RIGHT,
        CHECK,
    )
    assert table.splitlines()[1].split()[:5] == ["00_start_here", *"○○✓○"]
    assert table.endswith("Go on with exercise 00-1 in 00_start_here.ipynb.")
    assert told.format(1) in check
    assert progress.read(folder).exercises["00-3"].tries == 2
