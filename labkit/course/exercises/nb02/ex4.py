"""Exercise 02-4: exchange some heads of all tokens for all heads of some tokens, by one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, every_rank, simulated, some_rank

#: Of each call of the answer: tokens per rank, heads per rank of the result, and the type.
CALLS = ((3, 1, torch.float32), (2, 2, torch.float16))
Shape = tuple[int, int, torch.dtype]


def _tokens(shape: Shape, n: int) -> torch.Tensor:
    """Return the tokens of all ranks, (n * k, heads): 203 is token 2, head 3."""
    k, heads, dtype = shape
    return (100 * torch.arange(n * k)[:, None] + torch.arange(n * heads)).to(dtype)


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any]:
    """Give this rank's tokens, ask for its heads: in two shapes and types."""
    results, unchanged = [], True
    for shape in CALLS:
        mine = _tokens(shape, here.world_size).chunk(here.world_size)[here.rank]
        x = mine.to(here.device, copy=True)
        result = answer(x)
        unchanged = unchanged and x.cpu().equal(mine)
        results.append(result.clone() if isinstance(result, torch.Tensor) else result)
    return [*results, unchanged]


def expected(world_size: int) -> list[list[Any]]:
    return _each(lambda pieces: torch.cat(pieces))(world_size)


def _pieces(shape: Shape, rank: int, n: int) -> list[torch.Tensor]:
    """Return what a rank receives from each rank: (k, heads of one rank)."""
    return list(_tokens(shape, n).chunk(n, dim=1)[rank].chunk(n))


def _each(join: Callable[[list[torch.Tensor]], Any]) -> Callable[[int], list[list[Any]]]:
    """Return what every rank gives if it joins the right pieces in this way."""
    return lambda n: [[*(join(_pieces(shape, rank, n)) for shape in CALLS), True]
                      for rank in range(n)]  # fmt: skip


def _cut_in_memory(n: int) -> list[list[Any]]:
    """Return what every rank gives if each cuts its tokens as they lie in memory."""

    def part(shape: Shape, rank: int) -> torch.Tensor:
        rows = [mine.reshape(n, -1)[rank] for mine in _tokens(shape, n).chunk(n)]
        return torch.cat(rows).reshape(-1, shape[1])

    return [[*(part(shape, rank) for shape in CALLS), True] for rank in range(n)]


_heads_are_right = every_rank(lambda mine, its: same(mine[:2], its[:2]))


def _flat(result: Any) -> torch.Tensor:
    """Return the numbers of a tensor, or of a list of tensors."""
    return (
        torch.cat([_flat(part) for part in result])
        if isinstance(result, list)
        else result.flatten()
    )


@every_rank
def _numbers_are_right(mine: Any, its: Any) -> bool:
    return same([_flat(x) for x in mine[:2]], [_flat(x) for x in its[:2]])


@Predicate
def _shape_is_wrong(yours: Any, expected: Any, n: int) -> bool:
    return _numbers_are_right(yours, expected, n) and not _heads_are_right(yours, expected, n)


EXERCISE = Exercise(
    id="02-4",
    title="Exchange tokens for heads",
    answer="my_heads",
    trial=trial,
    expected=expected,
    entries=lambda n: (
        *(f"{k} tokens, {heads * n} heads" for k, heads, _ in CALLS),
        "x stays as it is",
    ),
    forbids=("all_gather", "all_gather_object"),
    goals=(
        Goal("collectives", exactly=lambda n: len(CALLS)),
        Goal(
            "bytes sent",
            most=lambda n: sum(k * heads * n * dtype.itemsize for k, heads, dtype in CALLS),
        ),
    ),
    mistakes=(
        Mistake(
            "The ranks have cut x as it lies in memory, token after token, so that each rank gets "
            "heads that belong to others. Cut x along dimension 1: by chunk, or by a view as "
            "(k, n, H / n) whose first two dimensions you then exchange.",
            when=simulated(_cut_in_memory),
        ),
        Mistake(
            "Each rank has the right numbers, but the tokens are not in order: first come all "
            "tokens of rank 0, then all of rank 1, and so on.",
            when=simulated(_each(lambda pieces: torch.stack(pieces, dim=1).flatten(0, 1))),
        ),
        Mistake(
            "The pieces are joined side by side, as if they were heads of the same tokens. They "
            "are the same heads of different tokens: join them along dimension 0.",
            when=simulated(_each(lambda pieces: torch.cat(pieces, dim=1))),
        ),
        Mistake(
            "The numbers are right, but the shape is not: join the pieces of all ranks into one "
            "tensor of shape (n · k, H / n).",
            when=_shape_is_wrong,
        ),
        Mistake(
            "Each rank returns its heads of its own tokens only: those of the other ranks are "
            "missing.",
            when=simulated(
                lambda n: [
                    [*(_pieces(shape, rank, n)[rank] for shape in CALLS), True] for rank in range(n)
                ]
            ),
        ),
        Mistake(
            "The heads are right, but x was changed: receive into separate tensors.",
            when=_heads_are_right & some_rank(lambda mine, its: mine[2] is False),
        ),
        Mistake(
            "The number of tokens cannot be divided by the number of ranks, nor should it be: the "
            "heads are to be divided, along dimension 1.",
            raises=r"does not divide equally",
        ),
        Mistake(
            "permute and transpose change only how the tensor is read, and the call sends what "
            "lies in memory. Call .contiguous() on what you send.",
            raises=r"[Tt]ensors? (?:must|has to|have to) be contiguous",
        ),
        Mistake(
            "The tensor for the result has a different dtype from x: both need the same "
            "(torch.empty_like).",
            raises=r"different dtypes|[Tt]ensors? .*(?:same|identical) type|must have the same",
        ),
        Mistake(
            "The result is right, but it takes several collectives per call, one for each rank. "
            "One of the eight sends from every rank to every rank in a single call.",
            missed="collectives",
        ),
        Mistake(
            "The result is right, but each rank sends more than its x. Send each rank only the "
            "heads that belong to it.",
            missed="bytes sent",
        ),
    ),
    hints=(
        "Each rank has something different for every rank. Which of the eight collectives takes "
        "it there? Which part of x is for rank i?",
        "x.chunk(world_size, dim=1) is a list: part i has the heads of rank i, for all tokens of "
        "this rank. The call gives you such a part from every rank.",
        "Make each part contiguous, send the parts with all_to_all into a list of tensors like "
        "them, and join what arrives along dimension 0.",
    ),
)
