"""What ipykernel and IPython both turn into Python is turned once, and anew for the next cell."""

from __future__ import annotations

import inspect

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit.rank import read_once

CELL = "a = 1"


@pytest.fixture
def shell() -> InteractiveShell:
    shell = InteractiveShell()
    read_once.install(shell)
    return shell


def run(shell: InteractiveShell, cell: str) -> None:
    """Run a cell as ipykernel does."""
    shell.transform_cell(cell)
    assert shell.run_cell(cell).success


def test_a_cell_is_read_once_each_time_that_it_runs(shell):
    read: list[str] = []

    def note(lines: list[str]) -> list[str]:
        read.append("".join(lines))
        return lines

    shell.input_transformers_post.append(note)
    for times in (1, 2):
        run(shell, CELL)
        assert read == [f"{CELL}\n"] * times
    shell.run_cell("1 / 0", silent=True)
    run(shell, "1 + 1")
    assert len(read) == 4


def test_what_a_cell_changes_counts_for_the_next_of_the_same_text(shell):
    shell.user_ns["add"] = lambda: shell.input_transformers_post.append(
        lambda lines: [*lines, "b = 2\n"]
    )
    run(shell, "add()")
    assert "b" not in shell.user_ns
    run(shell, "add()")
    assert shell.user_ns["b"] == 2


def test_the_signature_is_the_one_that_it_was(shell):
    names = list(inspect.signature(shell.run_cell_async).parameters)
    assert names[:4] == ["raw_cell", "store_history", "silent", "shell_futures"]
