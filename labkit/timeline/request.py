"""Ask ranks to record a function or a cell, from the notebook."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from ..errors import LabError
from ..runtime import request
from ..runtime.finish import Finished, values
from ..runtime.process_group import GroupKeeper
from ..wire import errands
from .timeline import Timeline


@dataclass(frozen=True)
class Cell:
    """The text of a cell, to be run among the variables of the ranks' cells."""

    text: str
    name: str  #: in errors: ``In[7]``


def record(
    group: GroupKeeper,
    ranks: Sequence[int],
    what: Callable[..., Any] | Cell,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    run: Callable[[request.Request], Finished],
    operators: bool = False,
) -> Timeline:
    """Run a function (with these arguments) or a cell on some ranks and record it.

    Parameters
    ----------
    run
        Waits for what was sent, and raises what went wrong.

    Raises
    ------
    LabError
        If torch hides its profiler; no rank runs anything then.
    RankError
        What it raises on the ranks; there is no timeline then.
    """
    if why := group.cluster.why_off("timelines"):
        raise LabError(why)
    fn = None if isinstance(what, Cell) else what
    if isinstance(what, Cell):
        args = (what.text, what.name)
    places = group.cluster.places
    hosts = {rank: places[rank].host for rank in ranks}
    key = f"labkit/timeline/{uuid.uuid4().hex}"
    asked = errands.record(fn, tuple(args), dict(kwargs or {}), key, hosts, bool(operators))
    payload = cloudpickle.dumps((errands.on_rank, (asked,), {}))
    return Timeline(values(run(request.call(group, ranks, payload)).outcomes))
