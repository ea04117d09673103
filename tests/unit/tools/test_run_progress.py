"""What `labkit run` shows of cells and of failures."""

from __future__ import annotations

import nbformat
import pytest

from labkit.tools import run_notebook, run_progress


def test_the_cell_is_shown_only_if_the_error_does_not_quote_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = "\n".join(f"line {i}" for i in range(1, 21))
    run_progress.show_failure(run_notebook.Failure(3, source, "\x1b[31mIt broke.\x1b[0m"), 9)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Cell 3 of 9 failed:"
    assert lines[1:8] == [f"    line {i}" for i in range(1, 8)]
    assert lines[8:] == ["    … 13 more lines", "It broke."]
    run_progress.show_failure(
        run_notebook.Failure(3, source, "Cell \x1b[32mIn[3]\x1b[0m, line 2"), 9
    )
    assert capsys.readouterr().err.splitlines() == ["Cell 3 of 9 failed:", "Cell In[3], line 2"]


def test_first_line() -> None:
    assert run_progress.first_line("\n\nx = 1\ny = 2") == "x = 1"
    assert run_progress.first_line("a" * 50) == "a" * 39 + "…"


def test_a_picture_is_shown_by_its_description() -> None:
    output = nbformat.v4.new_output("display_data", data={"image/png": "AAAA"})
    assert run_progress.output_text(output) == "[image/png]"
    output.data["text/plain"] = "<Figure>"
    assert run_progress.output_text(output) == "<Figure>"
