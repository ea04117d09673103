"""What IPython knows of a cell, and what is done without IPython."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from labkit.base.errors import CellSyntaxError
from labkit.notebook import shell


@pytest.fixture
def ipython(monkeypatch):
    """Pretend to be in a notebook's kernel, in its cell 7."""
    found = SimpleNamespace(
        kernel=object(),
        displayhook=SimpleNamespace(prompt_count=7),
        transform_cell=TransformerManager().transform_cell,
    )
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: found)
    return found


def test_a_notebook_is_told_from_a_terminal(ipython):
    assert shell.current() is shell.of_notebook() is ipython
    del ipython.kernel
    assert shell.current() is ipython
    assert shell.of_notebook() is None


def test_a_plain_program_has_no_shell_and_loads_none():
    code = (
        "import sys; from labkit.notebook import shell\n"
        "assert shell.current() is shell.of_notebook() is None\n"
        "assert 'IPython' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cells_have_the_names_that_the_notebook_shows(ipython):
    assert shell.cell_name(ipython) == "In[7]"
    assert shell.cell_name(None, "timeline") == "In[timeline]"


def test_a_cell_that_does_not_parse_is_named_with_its_line(ipython):
    shell.check_syntax(ipython, "x = 1\n!echo hello\n%time x\n")
    with pytest.raises(CellSyntaxError) as caught:
        shell.check_syntax(ipython, "x = 1\nif x\n    pass\n", first_line=2)
    assert str(caught.value) == (
        "line 3 does not parse (expected ':'): if x   No rank ran this cell."
    )
    shell.check_syntax(ipython, "await nothing()")


def test_without_a_shell_magics_do_not_parse():
    shell.check_syntax(None, "x = 1")
    with pytest.raises(CellSyntaxError, match=r"^line 1 does not parse .*: !echo hello "):
        shell.check_syntax(None, "!echo hello")
