"""Reload what has changed of the modules that this rank has imported: IPython's own extension.

IPython looks before each cell. A call of ``lab.run`` is no cell, so it asks for it.
"""

from __future__ import annotations

from typing import Any

from . import tracebacks

#: Whether it was asked for.
_on = False


def begin(shell: Any) -> None:
    """Begin to reload modules before each cell."""
    global _on
    _on = True
    shell.run_line_magic("load_ext", "autoreload")
    shell.run_line_magic("autoreload", "2")


def reload_changed() -> None:
    """Reload now what has changed, if reloading was asked for."""
    if _on:
        tracebacks.get_shell().run_line_magic("autoreload", "now")
