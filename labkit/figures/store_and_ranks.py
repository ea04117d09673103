"""Draw how processes that know one address become a process group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ..errors import UsageError
from ..rank_names import label, rank_colour
from .picture import Picture
from .sheet import Sheet
from .style import (
    CARD,
    INK,
    NOTE_SIZE,
    SOFT_INK,
    TITLE_SIZE,
    ink_of,
)

#: Ranks that can be drawn: one alone meets nobody.
FEWEST, MOST = 2, 5
#: Inches: the drawing's width, between two ranks, heights of the store, of the arrows, of a rank.
WIDTH, SPACE, STORE, ARROWS, RANK = 6.4, 0.3, 1.08, 0.62, 0.5


def rendezvous(
    world_size: int = 4,
    *,
    store: str = "MASTER_ADDR:MASTER_PORT",
    served_by: str = "rank 0",
    addresses: Sequence[object] | None = None,
    how_to_read: str = "This is gloo's way. 1: every rank connects to the store, the only address "
    "that all of them know, and writes its own address there. 2: it reads the others'. 3: the "
    "ranks connect to each other. Tensors take these connections, never the store.",
) -> Picture:
    """Draw how ranks find each other: a store in the middle first, then direct connections.

    Parameters
    ----------
    world_size
        Number of ranks, 2 to 5.
    store
        Address of the store.
    served_by
        What process the store lives in: ``"rank 0"``, or ``"torchrun's agent"``.
    addresses
        What each rank has written into the store, in rank order, such as ``"127.0.0.1:37477"``.
        Without them the picture says "its address".
    how_to_read
        What the numbers mean.

    Returns
    -------
    Picture
        The store above with an entry for each rank, the ranks below, each with an arrow to the
        store (1) and one back (2), and lines from rank to rank (3). Addresses are in the picture
        alone, since ports differ from run to run.

    Raises
    ------
    UsageError
        If the number of ranks cannot be drawn, or there is another number of addresses.

    Examples
    --------
    >>> picture = labkit.figures.rendezvous(4, store="127.0.0.1:29500")
    >>> print(picture.text.rpartition("\\n")[0])
    Rendezvous of 4 ranks; rank 0 serves the store.
    1. ranks 0–3 → store: my address
    2. store → ranks 0–3: the addresses of the others
    3. rank to rank: 6 connections
    """
    n = world_size
    if not FEWEST <= n <= MOST:
        raise UsageError(f"a picture shows a rendezvous of {FEWEST} to {MOST} ranks, not {n}")
    if addresses is not None and len(addresses) != n:
        raise UsageError(f"addresses has {len(addresses)} entries for {n} ranks")
    told = ["its address"] * n if addresses is None else [str(entry) for entry in addresses]
    top = STORE + ARROWS
    below = 0.4 + 0.14 * (n - 2)
    sheet = Sheet(WIDTH, top + RANK + below)
    sheet.box((0, 0), WIDTH, STORE, CARD, edge=INK)
    sheet.words((WIDTH / 2, 0.2), f"store at {store}", size=TITLE_SIZE, weight="bold")
    sheet.words((WIDTH / 2, 0.4), f"served by {served_by}", colour=SOFT_INK, size=NOTE_SIZE)
    wide = (WIDTH - (n - 1) * SPACE) / n
    middles = [rank * (wide + SPACE) + wide / 2 for rank in range(n)]
    for rank, (middle, address) in enumerate(zip(middles, told, strict=True)):
        colour = rank_colour(rank)
        sheet.words((middle, 0.64), f"rank {rank}", colour=ink_of(colour), weight="bold")
        entry = address.replace(":", "\n:") if n > 3 else address
        sheet.words(
            (middle, 0.73), entry, size=8 if n > 4 else NOTE_SIZE, va="top", linespacing=1.0
        )
        for step, side, ends in ((1, -1, (top, STORE)), (2, 1, (STORE, top))):
            ink = colour if step == 1 else SOFT_INK
            x = middle + 0.14 * side
            sheet.arrow((x, ends[0]), (x, ends[1]), ink, thick=1.6)
            sheet.words((x + 0.13 * side, STORE + ARROWS / 2), str(step), colour=ink_of(ink),
                        weight="bold")  # fmt: skip
        sheet.box((middle - wide / 2, top), wide, RANK, colour, edge=INK)
        sheet.words((middle, top + RANK / 2), f"rank {rank}", on=colour, size=TITLE_SIZE,
                    weight="bold", va="center_baseline")  # fmt: skip
    for one, other in combinations(range(n), 2):
        # the further apart, the deeper; an arc is half as deep as its bend says
        depth = 0.14 + (below - 0.4) * (other - one - 1) / max(1, n - 2)
        spread = wide / 3 * (other - one - 1) / max(1, n - 2) - wide / 4
        left, right = middles[one] - spread, middles[other] + spread
        sheet.arrow((left, top + RANK), (right, top + RANK), INK, heads=False,
                    bend=2 * depth / (right - left))  # fmt: skip
    count = n * (n - 1) // 2
    last = f"rank to rank: {count} connection{'s' * (count > 1)}"
    sheet.words((WIDTH / 2, top + RANK + below - 0.08), f"3  {last}", weight="bold")
    everyone = label(range(n))
    text = [
        f"Rendezvous of {n} ranks; {served_by} serves the store.",
        f"1. {everyone} → store: my address",
        f"2. store → {everyone}: the addresses of the others",
        f"3. {last}",
    ]
    return Picture(sheet.figure, "\n".join(text), how_to_read)
