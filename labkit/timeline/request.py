"""Ask ranks to record a function or a cell, from the notebook."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle

from ..errors import CellSyntaxError, LabError
from ..runtime import request
from ..runtime.cluster import on_rank
from ..runtime.process_group import GroupKeeper
from .timeline import Timeline

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def record(
    keeper: GroupKeeper,
    ranks: Sequence[int],
    code: Callable[..., Any] | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    operators: bool = False,
) -> Timeline:
    """Run a function or the text of a cell on some ranks and record it: ``lab.timeline``.

    Raises
    ------
    LabError
        If it is neither, before any rank runs anything.
    RankError
        What it raises on the ranks; there is no timeline then.
    """
    if isinstance(code, str):
        if args or kwargs:
            raise LabError("A cell takes no arguments; only a function does.")
        shell = _shell()
        _check(shell, code)
        args, kwargs = (code, _name(shell)), {}
    elif not callable(code):
        raise LabError(f"lab.timeline takes a function or the text of a cell, not {code!r}.")
    places = keeper.cluster.places
    hosts = {rank: places[rank].host for rank in ranks}
    what = None if isinstance(code, str) else code
    key = f"labkit/timeline/{uuid.uuid4().hex}"
    asked = (
        "profile.profiler.record_call",
        what,
        tuple(args),
        dict(kwargs),
        key,
        hosts,
        bool(operators),
    )
    return Timeline(request.call(keeper, ranks, cloudpickle.dumps((on_rank, asked, {}))))


def _shell() -> InteractiveShell | None:
    ipython = sys.modules.get("IPython")
    shell: InteractiveShell | None = ipython.get_ipython() if ipython else None
    return shell


def _name(shell: InteractiveShell | None) -> str:
    """Name the text after the notebook's cell that it is in, as errors do for all cells."""
    return f"In[{shell.displayhook.prompt_count}]" if shell else "In[timeline]"


def _check(shell: InteractiveShell | None, text: str) -> None:
    """Raise CellSyntaxError if the cell does not parse."""
    if not text.strip():
        raise LabError("This cell is empty: there is nothing to record.")
    try:
        compile(shell.transform_cell(text) if shell else text, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise CellSyntaxError(
            f"line {error.lineno or 1} does not parse ({error.msg}): {line}   "
            "No rank ran this cell."
        ) from None
