"""A lab starts in an odd environment too, or says in one sentence what is wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

#: What a notebook does, in a plain shell of IPython.
CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import labkit; lab = labkit.start(1)").raise_error()
shell.run_cell("%%px\\nprint('from', rank)").raise_error()
shell.run_cell("lab.stop()").raise_error()
"""


def run_python(
    code: str, *, options: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run some code in a Python of its own; what it prints and says is read as UTF-8."""
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**os.environ, **(variables or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )


def test_without_docstrings_the_magics_work() -> None:
    done = run_python(CELLS, options=["-OO"], variables={"PYTHONOPTIMIZE": "2"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "from 0" in done.stdout
