"""Find IPython's shell, and what it knows of the cell that runs: its number, whether it parses."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import CellSyntaxError, LabStopped

if TYPE_CHECKING:
    from IPython.core.completer import Matcher
    from IPython.core.interactiveshell import InteractiveShell


def current() -> InteractiveShell | None:
    """Return IPython's shell; None in a plain Python program, where nothing is imported for it."""
    ipython = sys.modules.get("IPython")
    shell: InteractiveShell | None = ipython.get_ipython() if ipython else None
    return shell


def add_matcher(shell: InteractiveShell, matcher: Matcher) -> None:
    """Make the shell's completion ask this too, once."""
    if matcher not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(matcher)


def of_notebook() -> InteractiveShell | None:
    """Return the shell if this is the kernel of a notebook, which shows HTML; else None."""
    shell = current()
    return shell if getattr(shell, "kernel", None) is not None else None


def file_of_notebook() -> Path | None:
    """Return the file of this notebook where the front end says which it is: JupyterLab in a
    variable of the kernel's environment, VS Code in one of its names. Else None."""
    shell = current()
    said = shell.user_ns.get("__vsc_ipynb_file__") if shell is not None else None
    file = Path(str(said or os.environ.get("JPY_SESSION_NAME", "")))
    return file if file.suffix == ".ipynb" and os.path.isfile(file) else None


def can_ask(notebook: InteractiveShell) -> bool | None:
    """Return whether the front end of a cell can ask somebody; None if it does not say.

    ``jupyter execute``, ``nbconvert --execute`` and all else that is built on nbclient cannot.
    """
    request: dict[str, Any] = notebook.get_parent()
    said = request.get("content", {}).get("allow_stdin")
    return None if said is None else bool(said)


#: The magics of a lab, by kind.
MAGICS = {"cell": ("px",), "line": ("px", "pxresult", "pxconfig", "autopx")}


def no_lab() -> LabStopped:
    """Return the error for what needs a lab where there is none."""
    return LabStopped("No lab is running; labkit.start() gives you one.")


def offer_magics(shell: InteractiveShell) -> None:
    """Make the magics of a lab say that there is none, where nobody has registered them."""
    for kind, names in MAGICS.items():
        for name in names:
            if name not in shell.magics_manager.magics[kind]:
                shell.magics_manager.register_function(_without_lab, kind, name)


def _without_lab(line: str, cell: str | None = None) -> None:
    """Run a cell on every rank of a lab: ``labkit.start()`` gives you one."""
    raise no_lab()


def keep_magics() -> Callable[[], None]:
    """Return a function that gives the magics of a lab back to whom they belong to now."""
    shell = current()
    if shell is None:
        return lambda: None
    known: dict[str, dict[str, Any]] = shell.magics_manager.magics
    before = {
        kind: {name: known[kind][name] for name in names if name in known[kind]}
        for kind, names in MAGICS.items()
    }

    def give_back() -> None:
        for kind, names in MAGICS.items():
            for name in names:
                known[kind].pop(name, None)
            known[kind].update(before[kind])
        offer_magics(shell)

    return give_back


def cell_name(shell: InteractiveShell | None, otherwise: str = "") -> str:
    """Name the cell that runs, ``In[7]``; without a shell ``In[otherwise]``."""
    # Not shell.execution_count: IPython counts on before it runs a cell.
    number = otherwise if shell is None else shell.displayhook.prompt_count
    return f"In[{number}]"


def check_syntax(shell: InteractiveShell | None, text: str, first_line: int = 1) -> None:
    """Raise CellSyntaxError if a cell does not parse, before any rank runs a part of it.

    ``first_line`` is the number that the cell's first line has for the learner. A cell may await
    something at its top level. Without a shell the text is plain Python, with no magics in it.
    """
    try:
        _compile(text)  # most cells are plain Python, which costs a tenth of IPython's reading
    except (SyntaxError, ValueError):
        pass
    else:
        return
    try:
        _compile(shell.transform_cell(text) if shell else text)
    except SyntaxError as error:
        line = (error.lineno or 1) + first_line - 1
        source = (error.text or "").strip()
        raise CellSyntaxError(
            f"line {line} does not parse ({error.msg}): {source}   No rank ran this cell."
        ) from None


def _compile(code: str) -> None:
    compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
