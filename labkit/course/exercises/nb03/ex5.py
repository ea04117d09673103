"""Exercise 03-5: add up in as few rounds as a tree does, or in fewer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from ...exercise import COLLECTIVES, Exercise, Here, Mistake
from ...mistakes import some_rank
from ...score import Score
from .ring import power_of_ten, too_small

#: What the answer calls: defined by the notebook.
TURN = """
def turn(outgoing=None, to=None, incoming=None, source=None):
    receive = [] if source is None else [dist.P2POp(dist.irecv, incoming, source)]
    send = [] if to is None else [dist.P2POp(dist.isend, outgoing, to)]
    for work in dist.batch_isend_irecv(receive + send):
        work.wait()
"""
#: Calls that would take no turn.
MESSAGES = ("send", "recv", "isend", "irecv")
NO_TURN = "no turn was taken"


def _allowed(n: int) -> int:
    """Return the rounds of a tree."""
    return 2 * _doublings(n)


def _at_most(n: int) -> str:
    return f"at most {_allowed(n)} rounds"


def _doublings(n: int) -> int:
    """Return log2 of the largest power of two up to n."""
    return n.bit_length() - 1


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Add up on a power of two of ranks and on half of them, and count the rounds."""
    most = 2 ** _doublings(here.world_size)
    found: list[Any] = []
    for n in (most, max(most // 2, 1)):
        if n > 1:
            found += _tried(answer, here, n)
    return found


def _tried(answer: Callable[..., Any], here: Here, n: int) -> list[Any]:
    if here.rank >= n:
        return [None, None]
    x = power_of_ten(here.rank, 2).to(here.device)
    counting = _Turns(here.device)
    with patch.dict(answer.__globals__, {"turn": counting.turn}):
        answer(x, n)
    if not counting.rounds:
        return [x, NO_TURN]
    rounds = f"{counting.rounds} round{'s'[: counting.rounds > 1]} on {n} ranks"
    return [x, Score(_at_most(n), rounds) if counting.rounds <= _allowed(n) else rounds]


class _Turns:
    """The notebook's ``turn``, which also counts rounds: with each message goes the number of the
    sender's rounds so far, and a rank that receives it cannot be done before the sender's next."""

    def __init__(self, device: torch.device) -> None:
        self.rounds, self._device = 0, device

    def turn(
        self, outgoing: Any = None, to: int | None = None, incoming: Any = None,
        source: int | None = None,
    ) -> None:  # fmt: skip
        mine = torch.tensor([self.rounds], device=self._device)
        theirs = torch.zeros_like(mine)
        works = []
        if source is not None:
            works += [dist.P2POp(dist.irecv, one, source) for one in (incoming, theirs)]
        if to is not None:
            works += [dist.P2POp(dist.isend, one, to) for one in (outgoing, mine)]
        for work in dist.batch_isend_irecv(works):
            work.wait()
        self.rounds = 1 + max(self.rounds, int(theirs.item()))


def expected(n: int) -> list[list[Any]]:
    most = 2 ** _doublings(n)
    found: list[list[Any]] = [[] for _ in range(n)]
    for m in (most, max(most // 2, 1)):
        total = torch.stack([power_of_ten(rank, 2) for rank in range(m)]).sum(0)
        for rank in range(n) if m > 1 else ():
            found[rank] += [total, Score(_at_most(m))] if rank < m else [None, None]
    return found


def labels(n: int) -> list[str]:
    most = 2 ** _doublings(n)
    sizes = [m for m in (most, most // 2) if m > 1]
    return [text for m in sizes for text in (f"x (n = {m})", f"rounds (n = {m})")]


def _x(yours: Any) -> list[Any]:
    """Return what each rank has of the first sum."""
    return [y[0] for y in yours if isinstance(y, list) and y and y[0] is not None]


def _digits(value: Any) -> list[int]:
    return [int(digit) for digit in str(int(value.view(-1)[0]))]


def _unchanged(yours: Any, expected: Any, n: int) -> bool:
    return all(x.equal(power_of_ten(rank, 2)) for rank, x in enumerate(_x(yours)))


def _only_rank_0(yours: Any, expected: Any, n: int) -> bool:
    """Return whether rank 0 has the sum, and another rank not."""
    right = [x.equal(expected[0][0]) for x in _x(yours)]
    return bool(right) and right[0] and not all(right)


def _twice(yours: Any, expected: Any, n: int) -> bool:
    """Return whether a rank's number is more than once in a sum."""
    return any(max(_digits(x)) > 1 for x in _x(yours))


def _missing(yours: Any, expected: Any, n: int) -> bool:
    """Return whether no rank has the sum, but each the number of some rank, and none twice."""
    found = [_digits(x) for x in _x(yours)]
    total = len(found)
    return bool(found) and all(set(one) <= {0, 1} and 0 < sum(one) < total for one in found)


def _too_many(mine: Any, its: Any) -> bool:
    pairs = list(zip(mine[::2], mine[1::2], strict=True))
    right = list(zip(its[::2], its[1::2], strict=True))
    sums = all(a[0] is None or a[0].equal(b[0]) for a, b in zip(pairs, right, strict=True))
    return sums and mine[1::2] != its[1::2]


EXERCISE = Exercise(
    id="03-5",
    title="Fewest rounds",
    answer="few_rounds",
    setup=TURN,
    trial=trial,
    expected=expected,
    entries=labels,
    forbids=(*COLLECTIVES, *MESSAGES),
    mistakes=(
        too_small("it is shorter than x"),
        Mistake(
            "Ranks wait for a rank that takes no part, or has stopped taking part. Every send "
            "needs a receive on the other side, in a turn that this rank also takes; n may be "
            "smaller than world_size.",
            stuck=r"which ha(?:s|ve) (?:ended|finished)",
        ),
        Mistake(
            "A rank waits for a partner that waits for another one. Write down for each rank, "
            "round by round, to whom it sends and from whom it receives.",
            stuck=r"rank \d+ waits|ranks? [\d–, ]+ wait",
        ),
        Mistake(
            "No turn was taken: send and receive with turn, which counts the rounds.",
            when=some_rank(lambda mine, its: NO_TURN in mine[1::2]),
        ),
        Mistake(
            "The sum is right, but takes more rounds than a tree, 2 · log2(n). Let pairs of ranks "
            "add up at the same time, then pairs of pairs.",
            when=some_rank(_too_many),
        ),
        Mistake(
            "x is unchanged: few_rounds puts the sum into x itself, with += or copy_.",
            when=_unchanged,
        ),
        Mistake(
            "Some ranks have no complete sum yet. The tree's second half sends it back down, from "
            "rank 0 to all others.",
            when=_only_rank_0,
        ),
        Mistake(
            "Some ranks are counted twice (look at the digits): a rank may only be sent what is "
            "not in its sum already.",
            when=_twice,
        ),
        Mistake(
            "Ranks are missing from the sums (the digits show which). What arrives replaces a sum "
            "if you receive into x: receive into another tensor, then x += incoming. Or there are "
            "too few rounds.",
            when=_missing,
        ),
    ),
    hints=(
        "After a round, two ranks can know the sum of both. After the next one, how many ranks can "
        "know a sum of four?",
        "A tree: in round k every rank that is an odd multiple of 2**k sends its sum to the rank "
        "2**k below, which adds it. Then the same rounds backwards, with the sum of all. Does "
        "anything stop both partners from adding up, so that nothing has to be sent back?",
        "Both partners swap their sums in one turn, and both add: with distance 1, then 2, then 4, "
        "rank ^ distance is the partner. That is called recursive doubling.",
    ),
)
