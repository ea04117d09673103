"""The magics of torchrun before torchrun starts."""

from __future__ import annotations

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit.base.errors import CellSyntaxError, UsageError
from labkit.notebook import torchrun


@pytest.fixture
def magics() -> torchrun.TorchrunMagics:
    return torchrun.TorchrunMagics(InteractiveShell())


def test_a_line_is_split_as_a_shell_does() -> None:
    assert torchrun.split("--nproc-per-node=2 x.py --name 'a b'") == [
        "--nproc-per-node=2",
        "x.py",
        "--name",
        "a b",
    ]
    assert torchrun.split("") == []


def test_a_quotation_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match=re.escape("(No closing quotation): x.py 'a")):
        torchrun.split("x.py 'a")


def test_an_empty_cell_is_refused(magics: torchrun.TorchrunMagics) -> None:
    with pytest.raises(UsageError, match="This cell is empty"):
        magics.cell("--nproc-per-node=2", "\n  \n")


def test_a_cell_that_does_not_parse_starts_nothing(magics: torchrun.TorchrunMagics) -> None:
    with pytest.raises(CellSyntaxError, match="line 3 does not parse"):
        magics.cell("", "x = 1\nif x\n    pass\n")
