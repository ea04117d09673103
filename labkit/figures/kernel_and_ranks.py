"""Draw which process runs a plain cell and which a ``%%px`` cell."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..rank_names import label, rank_colour
from .picture import Picture
from .sheet import Sheet
from .style import CARD, GRID, INK, LABEL_SIZE, LINE, NOTE_SIZE, TITLE_SIZE

#: Most ranks beside each other.
MAX_RANKS = 8
#: Inches: the drawing's width, between two ranks, heights of a process, of a bar and of an arrow.
WIDTH, SPACE, PROCESS, BAR, ARROW = 6.4, 0.16, 0.72, 0.34, 0.34
#: What belongs to no rank: the kernel's process.
KERNEL = CARD


def processes(
    devices: Sequence[object],
    *,
    backend: str = "gloo",
    kernel: int | None = None,
    pids: Sequence[int] | None = None,
    how_to_read: str = "A box with a solid edge is a process; a dashed bar joins processes.",
) -> Picture:
    """Draw the notebook's kernel, the ranks and their process group.

    Parameters
    ----------
    devices
        The device of each rank, in rank order, as ``lab["device"]`` returns them; at most 8.
    backend
        What the process group communicates with.
    kernel
        Process id of the kernel (``os.getpid()``), if it is to be shown.
    pids
        Process id of each rank, in rank order.
    how_to_read
        One sentence under the picture.

    Returns
    -------
    Picture
        The kernel above, a box for each rank below, and a bar for the process group under them.
        Backend, devices and process ids are in the picture alone: the text is the same on every
        machine.

    Raises
    ------
    UsageError
        If there are no ranks or more than 8, or another number of process ids.

    Examples
    --------
    >>> picture = labkit.figures.processes(lab["device"], backend="gloo")
    >>> print(picture.text.rpartition("\\n")[0])
    The processes of a lab of 4 ranks.
    kernel: a plain cell runs here, once; its variables are here
    ranks 0–3: a %%px cell runs here, once per rank, with variables of their own
    process group: ranks 0–3; tensors go from rank to rank, not through the kernel
    """
    n = len(devices)
    if not 1 <= n <= MAX_RANKS:
        raise UsageError(f"a picture shows 1 to {MAX_RANKS} ranks, not {n}")
    if pids is not None and len(pids) != n:
        raise UsageError(f"pids names {len(pids)} processes, but devices has {n}")
    tops = [0.0]
    for height in (PROCESS, ARROW, BAR, ARROW, PROCESS, ARROW):
        tops.append(tops[-1] + height)
    sheet = Sheet(WIDTH, tops[-1] + BAR)
    process = "" if kernel is None else f"process {kernel}, "
    _process(sheet, (0, tops[0]), WIDTH, KERNEL, "notebook kernel",
             f"{process}runs plain cells; its own variables, such as lab")  # fmt: skip
    sheet.arrow((WIDTH / 2, tops[1]), (WIDTH / 2, tops[2]), INK, both=True)
    _bar(sheet, tops[2], "%%px cell: the same code to every rank, their output back")
    wide = (WIDTH - (n - 1) * SPACE) / n
    for rank, device in enumerate(devices):
        left = rank * (wide + SPACE)
        middle = left + wide / 2
        sheet.arrow((middle, tops[3]), (middle, tops[4]), rank_colour(rank), both=True)
        what = str(device) if pids is None else f"process {pids[rank]}\n{device}"
        if n > 4 and pids is not None:
            what = f"{pids[rank]}\n{device}"
        _process(sheet, (left, tops[4]), wide, rank_colour(rank), f"rank {rank}", what)
        sheet.arrow((middle, tops[5]), (middle, tops[6]), rank_colour(rank), both=True)
    _bar(sheet, tops[6], f"process group ({backend}): tensors, from rank to rank")
    everyone = label(range(n))
    text = [
        f"The processes of a lab of {n} rank{'s' * (n > 1)}.",
        "kernel: a plain cell runs here, once; its variables are here",
        f"{everyone}: a %%px cell runs here, once per rank, with variables of their own",
        f"process group: {everyone}; tensors go from rank to rank, not through the kernel",
    ]
    return Picture(sheet.figure, "\n".join(text), how_to_read)


def _process(
    sheet: Sheet, corner: tuple[float, float], wide: float, colour: str, name: str, what: str
) -> None:
    """Draw a process with its name and what there is to say of it, in one line or two."""
    left, top = corner
    sheet.box(corner, wide, PROCESS, colour, edge=INK)
    lines = what.count("\n") + 1
    first = top + PROCESS / 2 - 0.085 * lines
    sheet.words((left + wide / 2, first), name, on=colour, size=TITLE_SIZE, weight="bold",
                va="center_baseline")  # fmt: skip
    sheet.words((left + wide / 2, first + 0.1), what, on=colour, size=NOTE_SIZE, va="top")


def _bar(sheet: Sheet, top: float, text: str) -> None:
    """Draw what joins processes, over the whole width."""
    sheet.box((0, top), WIDTH, BAR, GRID, edge=LINE, dashed=True)
    sheet.words((WIDTH / 2, top + BAR / 2), text, on=GRID, size=LABEL_SIZE)
