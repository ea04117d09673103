"""Find answers that are right for one number of ranks only, because it is written into them.

The lab has one number of ranks, and ``(rank + 1) % 4`` is right on each of four. What such an
answer asks for shows it: nothing that could tell how many ranks there are.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from ....wire.trial import Here, Watched

#: Names that tell nothing of the number of ranks, and do nothing that can be seen.
_SILENT = frozenset(
    {"rank", "get_rank", "dist", "torch", *dir(torch), *dir(torch.Tensor), *dir(builtins)}
    - {"print", "input", "open", "eval", "exec", "compile", "globals", "locals", "vars"}
    - {"__import__", "breakpoint", "exit", "quit"}
)


def right_by_chance(answer: Any, here: Here, right: Callable[[int, Any], bool], *args: Any) -> bool:
    """Tell whether an answer is right on every rank although it cannot know how many there are.

    Parameters
    ----------
    answer
        What the learner has defined. If it could learn the number of ranks in any way, or could
        do more than compute a value, it is not called.
    here
        Where the trial runs. One rank proves nothing.
    right
        ``right(rank, value)``: is that value the one for that rank?
    args
        What the answer is called with.
    """
    if isinstance(answer, Watched):
        answer = answer.__wrapped__
    if here.world_size < 2 or not _asks_for_rank_only(answer):
        return False
    return all(right(rank, _played(answer, rank, *args)) for rank in range(here.world_size))


def _asks_for_rank_only(answer: Any) -> bool:
    if not isinstance(answer, FunctionType) or answer.__defaults__ or answer.__kwdefaults__:
        return False
    codes = list(_codes(answer.__code__))
    loops = any(
        step.opname.startswith("JUMP_BACKWARD")
        for code in codes
        for step in dis.get_instructions(code)
    )
    names = {name for code in codes for name in (*code.co_names, *code.co_freevars)}
    return not loops and names <= _SILENT


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _played(answer: FunctionType, rank: int, *args: Any) -> Any:
    """Call an answer as if this rank had another number; None if it fails."""
    with (
        mock.patch.dict(answer.__globals__, {"rank": rank}),
        mock.patch.object(dist, "get_rank", return_value=rank),
    ):
        try:
            return answer(*args)
        except Exception:
            return None
