"""Draw boxes, words and arrows by hand: a lab, nodes, a rendezvous, a table of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from ..base.errors import UsageError
from ..base.rank_names import label, rank_colour
from .picture import Picture
from .style import (
    CARD,
    GRID,
    INK,
    LABEL_SIZE,
    LINE,
    NOTE_SIZE,
    SOFT_INK,
    TITLE_SIZE,
    ink_of,
    new_figure,
    text_on,
)

#: A place: inches to the right, inches down.
Point = tuple[float, float]
#: Radius of a box's corners in inches.
ROUND = 0.06
#: Width of a drawing, in inches.
WIDTH = 6.4
#: Inches between two ranks; heights of a process, of a bar and of an arrow.
SPACE, PROCESS, BAR, ARROW = 0.16, 0.72, 0.34, 0.34
#: In a rendezvous: between two ranks, heights of the store, of the arrows and of a rank.
APART, STORE, ARROWS, RANK = 0.3, 1.08, 0.62, 0.5
#: On a node: its width, height, the edge around its processes; heights of a process and a GPU.
NODE_WIDTH, NODE, EDGE, WORKER, GPU = 5.2, 1.42, 0.12, 0.56, 0.3
#: Least width of rows and columns of nodes, which have a title.
GRID_WIDTH = 4.1
#: Most nodes in a picture, and most processes on one.
MAX_NODES, MAX_WORKERS = 4, 4
#: In a table: of a row's name, a column, a row, the heads, between two boxes.
NAME, COLUMN, ROW, HEADS, GAP = 1.35, 1.15, 0.27, 0.85, 0.04
#: Most rows and columns of a table.
MAX_ROWS, MAX_COLUMNS = 16, 6
#: What stands where something was refused or is not there; it has a colour of its own.
NO = "no"
REFUSED, GIVEN = "#EECC66", "#A9C8E8"


class Sheet:
    """An empty figure of a size in inches, on which everything is placed by hand."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = new_figure(width, height)
        self.figure.set_layout_engine("none")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.axis("off")

    def box(
        self, corner: Point, width: float, height: float, colour: str, *, edge: str = "",
        dashed: bool = False, thick: float = 1.0, above: float = 1.0,
    ) -> None:  # fmt: skip
        """Draw a box with round corners from its left upper ``corner``."""
        from matplotlib.patches import FancyBboxPatch

        self.axes.add_patch(
            FancyBboxPatch(corner, width, height, linewidth=thick if edge else 0,
                           boxstyle=f"round,pad=0,rounding_size={min(ROUND, height / 4)}",
                           facecolor=colour, edgecolor=edge or "none", zorder=above,
                           linestyle=(0, (3, 2)) if dashed else "-", clip_on=False)
        )  # fmt: skip

    def words(
        self, place: Point, text: str, *, on: str = "", size: float = LABEL_SIZE,
        colour: str = INK, **look: Any,
    ) -> None:  # fmt: skip
        """Write words around a place; ``on`` is the colour below them, which chooses their ink."""
        look = {"ha": "center", "va": "center", "zorder": 5, "parse_math": False, **look}
        self.axes.text(*place, text, color=text_on(on) if on else colour, fontsize=size, **look)

    def arrow(
        self, tail: Point, tip: Point, colour: str = LINE, *, both: bool = False,
        bend: float = 0.0, thick: float = 1.3, heads: bool = True, above: float = 3.0,
    ) -> None:  # fmt: skip
        """Draw an arrow, at both ends if asked; ``bend`` is how far it curves, as part of its
        length."""
        from matplotlib.patches import FancyArrowPatch

        style = ("<|-|>" if both else "-|>") if heads else "-"
        self.axes.add_patch(
            FancyArrowPatch(tail, tip, arrowstyle=style, mutation_scale=6 + 3 * thick,
                            connectionstyle=f"arc3,rad={bend}", color=colour, lw=thick,
                            shrinkA=0, shrinkB=0, joinstyle="miter", capstyle="butt",
                            zorder=above, clip_on=False)
        )  # fmt: skip


def processes(devices: Sequence[object], *, backend: str = "gloo") -> Picture:
    """Draw the notebook's kernel, the ranks and their process group.

    Backend and devices are in the picture alone: the text is the same on every machine.

    Parameters
    ----------
    devices
        The device of each rank, in rank order, as ``lab["device"]`` returns them; at most 8.
    backend
        What the process group communicates with.

    Examples
    --------
    >>> picture = labkit.figures.processes(lab["device"], backend="gloo")
    >>> print(picture.text.rpartition("\\n")[0])
    4 ranks and the kernel: 5 processes, each with its own memory
    kernel: a plain cell runs here, once; its variables are here
    ranks 0–3: a %%px cell runs here, once per rank, with variables of their own
    process group: ranks 0–3; tensors go from rank to rank, not through the kernel
    """
    n = len(devices)
    if not 1 <= n <= 8:
        raise UsageError(f"a picture shows 1 to 8 ranks, not {n}")
    tops = [0.0]
    for height in (PROCESS, ARROW, BAR, ARROW, PROCESS, ARROW):
        tops.append(tops[-1] + height)
    sheet = Sheet(WIDTH, tops[-1] + BAR)
    title = f"{n} rank{'s' * (n > 1)} and the kernel: {n + 1} processes, each with its own memory"
    sheet.words((0, -0.2), title, ha="left", weight="bold", size=TITLE_SIZE)
    _process(sheet, (0, tops[0]), WIDTH, CARD, "notebook kernel",
             "runs plain cells; its own variables, such as lab")  # fmt: skip
    sheet.arrow((WIDTH / 2, tops[1]), (WIDTH / 2, tops[2]), INK, both=True)
    _bar(sheet, tops[2], "%%px cell: the same code to every rank, their output back")
    wide = (WIDTH - (n - 1) * SPACE) / n
    for rank, device in enumerate(devices):
        left, colour = rank * (wide + SPACE), rank_colour(rank)
        middle = left + wide / 2
        sheet.arrow((middle, tops[3]), (middle, tops[4]), colour, both=True)
        _process(sheet, (left, tops[4]), wide, colour, f"rank {rank}", str(device))
        sheet.arrow((middle, tops[5]), (middle, tops[6]), colour, both=True)
    _bar(sheet, tops[6], f"process group ({backend}): tensors, from rank to rank")
    everyone = label(range(n))
    text = [
        title,
        "kernel: a plain cell runs here, once; its variables are here",
        f"{everyone}: a %%px cell runs here, once per rank, with variables of their own",
        f"process group: {everyone}; tensors go from rank to rank, not through the kernel",
    ]
    note = "A box with a solid edge is a process; a dashed bar joins processes."
    return Picture(sheet.figure, "\n".join(text), note)


def _process(
    sheet: Sheet, corner: tuple[float, float], wide: float, colour: str, name: str, what: str
) -> None:
    """Draw a process with its name and what there is to say of it."""
    left, top = corner
    sheet.box(corner, wide, PROCESS, colour, edge=INK)
    first = top + PROCESS / 2 - 0.085
    sheet.words((left + wide / 2, first), name, on=colour, size=TITLE_SIZE, weight="bold",
                va="center_baseline")  # fmt: skip
    sheet.words((left + wide / 2, first + 0.1), what, on=colour, size=NOTE_SIZE, va="top")


def _bar(sheet: Sheet, top: float, text: str) -> None:
    """Draw what joins processes, over the whole width."""
    sheet.box((0, top), WIDTH, BAR, GRID, edge=LINE, dashed=True)
    sheet.words((WIDTH / 2, top + BAR / 2), text, on=GRID, size=LABEL_SIZE)


def nodes(sizes: Sequence[int], *, columns: bool = False) -> Picture:
    """Draw the processes of a job on their nodes, each with its RANK, its LOCAL_RANK and its GPU.

    Parameters
    ----------
    sizes
        Number of processes on each node, one per GPU: 1 to 4 nodes with 1 to 4 processes.
    columns
        Whether to outline the processes with the same LOCAL_RANK, and to draw the fast links
        inside each node.

    Examples
    --------
    >>> picture = labkit.figures.nodes([2, 2])
    >>> print(picture.text.rpartition("\\n")[0])
    RANK continues across nodes; LOCAL_RANK restarts at 0
    node 0: RANK 0, LOCAL_RANK 0, cuda:0; RANK 1, LOCAL_RANK 1, cuda:1
    node 1: RANK 2, LOCAL_RANK 0, cuda:0; RANK 3, LOCAL_RANK 1, cuda:1
    """
    if not (1 <= len(sizes) <= MAX_NODES and all(1 <= size <= MAX_WORKERS for size in sizes)):
        raise UsageError(
            f"a picture shows 1 to {MAX_NODES} nodes with 1 to {MAX_WORKERS} processes each, not "
            f"{list(sizes)}"
        )
    title = (
        "A row is a node; a column has one LOCAL_RANK"
        if columns
        else "RANK continues across nodes; LOCAL_RANK restarts at 0"
    )
    bottom = 0.3 + len(sizes) * (NODE + SPACE) - SPACE
    wide = (NODE_WIDTH - EDGE) / MAX_WORKERS - EDGE
    node_width = EDGE + max(sizes) * (wide + EDGE) if columns else NODE_WIDTH
    sheet = Sheet(max(node_width, GRID_WIDTH), bottom + 0.36 * columns)
    sheet.words((0, 0.08), title, ha="left", weight="bold", size=TITLE_SIZE)
    text, rank = [title], 0
    for node, size in enumerate(sizes):
        top = 0.3 + node * (NODE + SPACE)
        sheet.box((0, top), node_width, NODE, GRID, edge=LINE)
        name = f"row {node}: node {node}" if columns else f"node {node}"
        sheet.words((EDGE + 0.05 * columns, top + 0.17), name, on=GRID, ha="left", weight="bold")
        told = []
        for local_rank in range(size):
            left, gpu = EDGE + local_rank * (wide + EDGE), f"cuda:{local_rank}"
            middle, colour = left + wide / 2, rank_colour(rank)
            below = top + 0.3 + WORKER
            sheet.box((left, top + 0.3), wide, WORKER, colour, edge=INK)
            sheet.words((middle, top + 0.47), f"RANK {rank}", on=colour, weight="bold")
            sheet.words((middle, top + 0.69), f"LOCAL_RANK {local_rank}", on=colour, size=NOTE_SIZE)
            sheet.arrow((middle, below), (middle, below + 0.14), INK, heads=False)
            sheet.box((left, below + 0.14), wide, GPU, CARD, edge=INK)
            sheet.words((middle, below + 0.14 + GPU / 2), gpu)
            if columns and local_rank:
                height = below + 0.14 + GPU / 2
                sheet.arrow((left - EDGE, height), (left, height), INK, heads=False, thick=5)
            told.append(f"RANK {rank}, LOCAL_RANK {local_rank}, {gpu}")
            rank += 1
        text.append(f"node {node}: {'; '.join(told)}")
    note = (
        "A coloured box is a process, the white box below it its GPU. GPUs and local ranks are "
        "numbered from 0 on each node."
    )
    if columns:
        for column in range(max(sizes)):
            left, width = 0.66 * EDGE + column * (wide + EDGE), wide + 0.68 * EDGE
            sheet.box((left, 0.56), width, bottom - 0.44, "none", edge=INK, dashed=True,
                      thick=1.6, above=4)  # fmt: skip
            sheet.words((left + width / 2, bottom + 0.26), f"column {column}",
                        weight="bold")  # fmt: skip
        note = "Thick lines are the fast links inside a node; a dashed outline is a column."
    return Picture(sheet.figure, "\n".join(text), note)


def rendezvous(world_size: int = 4) -> Picture:
    """Draw how ranks find each other: a store in the middle first, then direct connections.

    The store stands above with an entry for each rank, the ranks below, each with an arrow to the
    store (1) and one back (2), and lines from rank to rank (3).

    Parameters
    ----------
    world_size
        Number of ranks, 2 to 5.

    Examples
    --------
    >>> picture = labkit.figures.rendezvous(4)
    >>> print(picture.text.rpartition("\\n")[0])
    4 ranks find each other through the store, then connect directly; rank 0 serves it.
    1. ranks 0–3 → store: my address
    2. store → ranks 0–3: the addresses of the others
    3. rank to rank: 6 connections
    """
    n = world_size
    if not 2 <= n <= 5:
        raise UsageError(f"a picture shows a rendezvous of 2 to 5 ranks, not {n}")
    top = STORE + ARROWS
    below = 0.4 + 0.14 * (n - 2)
    sheet = Sheet(WIDTH, top + RANK + below)
    title = f"{n} ranks find each other through the store, then connect directly"
    sheet.words((0, -0.2), title, ha="left", weight="bold", size=TITLE_SIZE)
    sheet.box((0, 0), WIDTH, STORE, CARD, edge=INK)
    sheet.words((WIDTH / 2, 0.2), "store at MASTER_ADDR:MASTER_PORT", weight="bold")
    sheet.words((WIDTH / 2, 0.4), "served by rank 0", colour=SOFT_INK, size=NOTE_SIZE)
    wide = (WIDTH - (n - 1) * APART) / n
    middles = [rank * (wide + APART) + wide / 2 for rank in range(n)]
    for rank, middle in enumerate(middles):
        colour = rank_colour(rank)
        sheet.words((middle, 0.64), f"rank {rank}", colour=ink_of(colour), weight="bold")
        sheet.words((middle, 0.73), "its address", size=8 if n > 4 else NOTE_SIZE, va="top",
                    linespacing=1.0)  # fmt: skip
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
        far = (other - one - 1) / max(1, n - 2)
        depth, spread = 0.14 + (below - 0.4) * far, wide / 3 * far - wide / 4
        left, right = middles[one] - spread, middles[other] + spread
        sheet.arrow((left, top + RANK), (right, top + RANK), INK, heads=False,
                    bend=2 * depth / (right - left))  # fmt: skip
    count = n * (n - 1) // 2
    last = f"rank to rank: {count} connection{'s' * (count > 1)}"
    # not "3 connections": the 3 is the step's number
    counted = f"step 3: {count} connection{'s' * (count > 1)}, rank to rank"
    sheet.words((WIDTH / 2, top + RANK + below - 0.08), counted, weight="bold")
    everyone = label(range(n))
    text = [
        f"{title}; rank 0 serves it.",
        f"1. {everyone} → store: my address",
        f"2. store → {everyone}: the addresses of the others",
        f"3. {last}",
    ]
    note = (
        "This is how gloo does it. 1: every rank connects to the store, the only address that all "
        "of them know, and writes its own address there. 2: it reads the others'. 3: the ranks "
        "connect to each other. Tensors take these connections, never the store."
    )
    return Picture(sheet.figure, "\n".join(text), note)


def answers(
    table: Mapping[str, Mapping[str, object]], *, title: str = "", how_to_read: str = ""
) -> Picture:
    """Draw a table of answers, a box for each, and mark those that are "no".

    Parameters
    ----------
    table
        For each column, such as ``"gloo"``, its answer in each row, such as ``{"SUM": 27, "AVG":
        "no"}``. All columns have the same rows; at most 16 rows and 6 columns.
    title
        What was asked.
    how_to_read
        One sentence that says what an answer means.

    Examples
    --------
    >>> picture = labkit.figures.answers({"floats": {"SUM": 27.0, "BAND": "no"}})
    >>> print(picture.text)
    columns: floats
    SUM: 27.0
    BAND: no
    """
    rows = list(next(iter(table.values()), {}))
    if not (1 <= len(table) <= MAX_COLUMNS and 1 <= len(rows) <= MAX_ROWS):
        raise UsageError(
            f"the table has {len(table)} columns and {len(rows)} rows; a figure shows 1 to "
            f"{MAX_COLUMNS} and 1 to {MAX_ROWS}"
        )
    if odd := [head for head, said in table.items() if list(said) != rows]:
        raise UsageError(f"column {odd[0]!r} has other rows than the first column: {rows}")
    sheet = Sheet(NAME + COLUMN * len(table), HEADS + ROW * len(rows))
    sheet.words((0, 0.12), title, ha="left", weight="bold", size=TITLE_SIZE)
    for column, (head, said) in enumerate(table.items()):
        left = NAME + column * COLUMN
        sheet.words((left + COLUMN / 2, HEADS - 0.28), head, linespacing=1.1)
        for row, name in enumerate(rows):
            top = HEADS + row * ROW
            colour = REFUSED if said[name] == NO else GIVEN
            sheet.box((left + GAP, top + GAP / 2), COLUMN - 2 * GAP, ROW - GAP, colour)
            sheet.words((left + COLUMN / 2, top + ROW / 2), str(said[name]), colour=text_on(colour))
    for row, name in enumerate(rows):
        place = (NAME - 0.1, HEADS + (row + 0.5) * ROW)
        sheet.words(place, name, ha="right", colour=INK, size=LABEL_SIZE)
    heads = ", ".join(" ".join(head.split()) for head in table)
    lines = [title] if title else []
    lines += [f"columns: {heads}"]
    lines += [f"{name}: {', '.join(str(said[name]) for said in table.values())}" for name in rows]
    return Picture(sheet.figure, "\n".join(lines), how_to_read)
