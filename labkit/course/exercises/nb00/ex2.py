"""Exercise 00-2: divide a batch of any length into one part per rank, as equal as possible."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, When, simulated, some_rank

#: Rows of the batches: four ranks divide none of the first three evenly, and of the second and
#: third not all get the same with three or two ranks.
LENGTHS = (10, 7, 3, 8)


def _batch(length: int, device: Any = "cpu") -> torch.Tensor:
    """Return a batch whose row i is [i, 0, i]; a whole number, as images have, for odd lengths."""
    numbers = torch.arange(length, device=device, dtype=(torch.float32, torch.int64)[length % 2])
    return torch.stack([numbers, torch.zeros_like(numbers), numbers], dim=1)


def _shown(part: Any, batch: torch.Tensor) -> Any:
    """Return the numbers of the rows of a part; what is no part, in words."""
    if not isinstance(part, torch.Tensor):
        return None if part is None else f"a {type(part).__name__}, not a tensor"
    if part.dim() != 2:
        return f"a tensor of shape {tuple(part.shape)}"
    if part.shape[1] != batch.shape[1]:
        return f"rows of {part.shape[1]} numbers, not of {batch.shape[1]}"
    if part.dtype != batch.dtype:
        return f"{part.dtype}, not {batch.dtype}".replace("torch.", "")
    if not part.equal(_batch(len(batch), part.device)[part[:, 0].long().clamp(0, len(batch) - 1)]):
        return "rows that the batch does not have"
    return [int(row) for row in part[:, 0]]


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    parts = []
    for length in LENGTHS:
        batch = _batch(length, here.device)
        part = _shown(answer(batch), batch)
        if not batch.equal(_batch(length, here.device)):
            part = "the batch was changed"
        parts.append(part)
    if all(part is None or isinstance(part, str) for part in parts) and len(set(parts)) == 1:
        return parts[0]  # said once: a learner's stub, a list instead of a tensor
    return parts


def _taken(take: Callable[[list[int], int, int], list[int]]) -> Callable[[int], list[Any]]:
    """Return what each rank has if it takes ``take(rows, rank, n)``."""
    return lambda n: [[take(list(range(length)), r, n) for length in LENGTHS] for r in range(n)]


def _divided(begin: Callable[[int, int, int], int]) -> Callable[[int], list[Any]]:
    """Return what each rank takes if its part goes from ``begin(length, rank, n)`` to where the
    next one begins."""
    return _taken(lambda rows, r, n: rows[begin(len(rows), r, n) : begin(len(rows), r + 1, n)])


expected = _divided(lambda length, r, n: r * (length // n) + min(r, length % n))


def _any(text: str) -> When:
    """Return the predicate of parts of which one is described with this text."""
    return some_rank(
        lambda mine, its: any(
            isinstance(part, str) and text in part
            for part in ([mine] if isinstance(mine, str) else mine)
        )
    )


def _parts(yours: Any) -> list[tuple[list[int], ...]]:
    """Return the parts of each batch in rank order; nothing if one of them is no part."""
    lists = all(isinstance(part, list) for mine in yours for part in mine)
    return list(zip(*yours, strict=True)) if lists else []


@Predicate
def _overlap(yours: Any, expected: Any, n: int) -> bool:
    """Return whether a row of a batch is on two ranks."""
    joined = [list(chain(*parts)) for parts in _parts(yours)]
    return any(len(rows) > len(set(rows)) for rows in joined)


@Predicate
def _as_equal(yours: Any, expected: Any, n: int) -> bool:
    """Return whether the parts give the whole batch in order, and differ by at most one row."""
    batches = list(zip(_parts(yours), LENGTHS, strict=False))
    return bool(batches) and all(
        list(chain(*parts)) == list(range(length))
        and max(map(len, parts)) - min(map(len, parts)) <= 1
        for parts, length in batches
    )


EXERCISE = Exercise(
    id="00-2",
    title="Take your part of the batch",
    answer="my_part",
    trial=trial,
    expected=expected,
    entries=tuple(f"rows of {length}" for length in LENGTHS),
    mistakes=(
        Mistake(
            "Every rank takes the whole batch: which rows a rank takes has to depend on rank.",
            when=simulated(_taken(lambda rows, r, n: rows)),
        ),
        Mistake(
            "The parts are rounded down to the same length, so the last rows of the batch are on "
            "no rank: of 10 rows on four ranks, two are lost.",
            when=simulated(_divided(lambda length, r, n: r * (length // n))),
            hint="len(batch) % world_size rows are left over. Which ranks take one of them?",
        ),
        Mistake(
            "The last rank takes all that is left over: with 7 rows and four ranks it has 4 rows, "
            "and the others 1. The lengths may differ by one row only.",
            when=simulated(_divided(lambda length, r, n: length if r == n else r * (length // n))),
            hint="len(batch) % world_size rows are left over. Give one each to the first ranks.",
        ),
        Mistake(
            "The parts are rounded up to the same length, so the last ranks get less, or nothing: "
            "of 10 rows, four ranks get 3, 3, 3 and 1. The lengths may differ by one row only.",
            when=simulated(_divided(lambda length, r, n: r * -(-length // n))),
            hint="len(batch) % world_size ranks take one row more than the others.",
        ),
        Mistake(
            "chunk rounds the length of the parts up and may return fewer parts than you ask for: "
            "of 10 rows, four ranks get 3, 3, 3 and 1; of 3 rows, there is no fourth part.",
            raises=r"^IndexError: (?:tuple|list) index out of range[\s\S]*chunk",
            hint="Look beside torch.chunk in PyTorch's list of functions: one divides more evenly.",
        ),
        Mistake(
            "split takes the length of a part, not how many parts there are.",
            raises=r"^(?:IndexError: (?:tuple|list) index out of range[\s\S]*\bsplit\("
            r"|RuntimeError: split_size can only be 0)",
            hint="Look beside torch.split in PyTorch's list of functions.",
        ),
        Mistake(
            "Each rank takes every world_size-th row. It should take consecutive rows: rank 0 the "
            "first ones.",
            when=simulated(_taken(lambda rows, r, n: rows[r::n])),
        ),
        Mistake(
            "batch[rank] is a single row, and there is none if the batch has fewer rows than "
            "ranks. A part has several rows: batch[begin:end].",
            when=_any("a tensor of shape (3,)"),
            raises=r"^IndexError: index \d+ is out of bounds",
        ),
        Mistake(
            "These are the parts of all ranks: return only this rank's part.",
            when=_any("a tuple, not a tensor"),
        ),
        Mistake(
            "That is a list. Return a tensor: a slice of a tensor is one, and torch.stack makes "
            "one from a list of rows.",
            when=_any("a list, not a tensor"),
        ),
        Mistake(
            "The parts are as equal as they can be, but the longer ones are to come first: of 10 "
            "rows, four ranks get 3, 3, 2 and 2.",
            when=_as_equal,
            hint="len(batch) % world_size ranks take one row more: those with the lowest numbers.",
        ),
        Mistake(
            "Some rows are on two ranks. The ranks before this one may have taken one row more "
            "each, so the beginning of its part has to move, too.",
            when=_overlap,
        ),
        Mistake(
            "The batch itself was changed. Return a part of it and leave it unchanged.",
            when=_any("was changed"),
        ),
    ),
    hints=(
        "How long are the parts of 10 rows on four ranks? Two rows are left over if each rank "
        "takes 10 // 4 = 2: which ranks get them?",
        "The first len(batch) % world_size ranks take one row more than the others. Where does "
        "the part of rank r begin, then? Or let PyTorch do it: find a function like chunk that "
        "divides more evenly.",
        "There is a function that divides a tensor into a given number of nearly equal parts: its "
        "name begins with tensor_.",
    ),
)
