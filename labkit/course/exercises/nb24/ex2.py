"""Exercise 24-2: send every token to its expert, and the result back to where it came from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import every_rank, rank_simulated, simulated, some_rank

CALLS = range(2)


def _tokens(call: int, rank: int) -> torch.Tensor:
    """Return what a rank has: large whole numbers; then rows of floats, and none on rank 1."""
    if call == 0:
        return 2**24 + 1 + 1000 * rank + torch.arange(2 + (3 * rank + 1) % 4) * 10
    rows = [3, 0, 4, 1][rank % 4]
    return torch.arange(2.0 * rows).view(rows, 2) - 50 * rank


def _wants(call: int, rank: int, n: int) -> torch.Tensor:
    """Return the expert of each token, in no order; in the second call nobody wants expert 0,
    where there is another one."""
    count = len(_tokens(call, rank))
    if call == 0:
        chosen = [(rank + 1 + i * (i + 1) // 2) % n for i in range(count)]
    else:
        chosen = [n - 1 - (i + rank) % max(n - 1, 1) for i in range(count)]
    return torch.tensor(chosen, dtype=torch.int64)


def _process(tokens: torch.Tensor, expert: int) -> torch.Tensor:
    """Do what an expert does to tokens."""
    return tokens * 3 + expert + 1


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Ask the experts twice; note how often this rank's own expert worked, and on how many."""
    results: list[Any] = []
    worked: list[int] = []

    def work(tokens: torch.Tensor) -> torch.Tensor:
        worked.append(len(tokens))
        return _process(tokens, here.rank)

    unchanged = True
    for call in CALLS:
        tokens = _tokens(call, here.rank).to(here.device)
        before = tokens.clone()
        wants = _wants(call, here.rank, here.world_size).to(here.device)
        results.append(answer(tokens, wants, work))
        unchanged = unchanged and tokens.equal(before)
    return [*results, worked, unchanged]


def expected(world_size: int) -> list[list[Any]]:
    """Make one process ask the experts, token by token."""
    return _each(_asked)(world_size)


def _asked(call: int, rank: int, n: int, *, as_floats: bool = False) -> torch.Tensor:
    tokens = _tokens(call, rank).float() if as_floats else _tokens(call, rank)
    wants = _wants(call, rank, n).view(-1, *[1] * (tokens.dim() - 1))
    return _process(tokens, wants)  # type: ignore[arg-type]


def _arriving(call: int, expert: int, n: int) -> torch.Tensor:
    """Return the tokens that an expert gets, in the order of the ranks."""
    every = [(_tokens(call, rank), _wants(call, rank, n)) for rank in range(n)]
    return torch.cat([tokens[wants == expert] for tokens, wants in every])


def _each(simulate: Callable[[int, int, int], torch.Tensor]) -> Callable[[int], list[list[Any]]]:
    """Return what every rank gives if ``simulate(call, rank, n)`` are its results."""
    return lambda n: [
        [
            *(simulate(call, rank, n) for call in CALLS),
            [len(_arriving(call, rank, n)) for call in CALLS],
            True,
        ]
        for rank in range(n)
    ]


def _sorted(call: int, rank: int, n: int) -> torch.Tensor:
    """Return the results in the order of the experts."""
    return _asked(call, rank, n)[_wants(call, rank, n).argsort(stable=True)]


def _sorted_twice(call: int, rank: int, n: int) -> torch.Tensor:
    return _sorted(call, rank, n)[_wants(call, rank, n).argsort(stable=True)]


EXERCISE = Exercise(
    id="24-2",
    title="Ask the experts",
    answer="ask_experts",
    trial=trial,
    expected=expected,
    entries=(
        "results for whole numbers",
        "results for rows of floats",
        "how many tokens work got, call by call",
        "tokens stays as it is",
    ),
    forbids=("all_gather", "all_gather_object", "gather_object"),
    goals=(Goal("collectives", most=lambda n: 3 * len(CALLS)),),
    mistakes=(
        Mistake(
            "The results are in the order of the experts. Result i that came back belongs to token "
            "order[i]: put it there.",
            when=simulated(_each(_sorted)),
        ),
        Mistake(
            "The results were reordered in the wrong direction: back[order] moves result order[i] "
            "to index i, but result i belongs at index order[i].",
            when=simulated(_each(_sorted_twice)),
        ),
        Mistake(
            "Integers have gone through float32, which has only 24 bits for their digits: "
            "50,331,653 became 50,331,652. Make every buffer with the dtype of tokens, as "
            "tokens.new_empty and torch.empty_like(tokens) do.",
            when=simulated(_each(partial(_asked, as_floats=True)))
            | simulated(_each(lambda call, rank, n: _asked(call, rank, n).float())),
        ),
        Mistake(
            "Each rank's expert has processed that rank's own tokens. Send every token to the rank "
            "that expert[i] names.",
            when=rank_simulated(
                lambda rank, n: [len(_tokens(call, rank)) for call in CALLS], lambda own: own[2]
            ),
        ),
        Mistake(
            "Tokens went to the wrong experts: the counts are right, but all_to_all_single cuts "
            "its input from the front, so the tokens have to be in the order of their experts.",
            when=every_rank(
                lambda mine, its: mine[2:] == its[2:] and mine[0].shape == its[0].shape
            ),
        ),
        Mistake(
            "Those are the results of the tokens that this rank's expert got; send them back to "
            "the ranks that the tokens came from.",
            when=every_rank(lambda mine, its: [len(results) for results in mine[:2]] == mine[2]),
        ),
        Mistake(
            "Not every rank makes the three calls. A rank without tokens has to make them too: it "
            "sends nothing, but tokens of others may come to its expert. So does one to which "
            "none comes.",
            stuck=r"Cause: The call stands under a condition",
        ),
        Mistake(
            "The sizes of a transfer do not fit its tensors. First list: what comes from each "
            "rank, for the output; second list: what goes to each rank, for the input. On the "
            "way back swap the two lists. No transfer of tokens has equal pieces.",
            raises=r"[Ss]plit sizes|does not divide|not.*divisible|number of elements",
            stuck=r"all_to_all",
        ),
        Mistake(
            "The results are right, but work has to be called exactly once per call, even on a "
            "rank to which no token came.",
            when=some_rank(lambda mine, its: mine[2] != its[2])
            & every_rank(
                lambda mine, its: all(mine[k].equal(its[k].to(mine[k].device)) for k in CALLS)
            ),
        ),
        Mistake(
            "The results are right, but it takes more than three collectives per call: one for "
            "the sizes, one there, one back. You know the sizes for the way back already.",
            missed="collectives",
        ),
    ),
    hints=(
        "The way there is that of the cells above: sort, send the sizes, send the tokens.",
        "The way back is the same transfer in the other direction: what came from a rank goes "
        "back to it, in the order in which it came.",
        "What comes back is in the order of the experts; `order` says which token was at which "
        "index of it.",
    ),
    seconds=30,
)
