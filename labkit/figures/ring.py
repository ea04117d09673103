"""Draw a ring all-reduce as a strip: a small table of ranks and chunks for each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.errors import UsageError
from ..base.rank_names import fold, label, rank_colour
from .chunks import Parts, Step, follow_chunks
from .drawings import Sheet
from .film import in_phases, write_film
from .picture import Picture
from .style import INK, NOTE_SIZE, SOFT_INK, TITLE_SIZE, ink_of
from .values import text_width

#: Ranks that can be drawn.
FEWEST, MOST = 2, 8
#: Tables beside each other, and what they may take together, in inches.
COLUMNS, WIDTH = 4, 7.2
#: Inches: names of ranks, between two tables, widest cell, its height, between two ranks (where
#: the arrows are), between cell and frame.
NAMES, GAP, WIDEST, HIGH, ROW_GAP, FRAME = 0.62, 0.26, 0.46, 0.27, 0.2, 0.03
#: Inches: the title; names of phase and step, and of chunks; below a row of tables; the legend.
TITLE, PHASE, HEAD, FOOT, LEGEND = 0.3, 0.3, 0.5, 0.16, 0.3
#: Font sizes of values, best first.
SIZES = (9.0, 8.0, 7.0)
#: A sum is the darker, the more ranks' parts it has; a value that is no such sum is yellow.
COMPLETE, STRANGE = "#004488", "#EECC66"
#: The edge of a cell, so that the palest is seen.
EDGE = "#9A9A9A"
LEGEND_WIDTH = 6.5

HOW_TO_READ = (
    "A row is a rank, a column a chunk. An arrow is a message that was recorded, in the sender's "
    "colour; the chunk that it carried is the one that changed. From the last rank it goes on at "
    "the first."
)


def ring_strip(
    states: Sequence[Sequence[Any]],
    messages: Iterable[Sequence[Any]],
    *,
    phases: Sequence[str] = (),
    title: str = "",
) -> Picture:
    """Draw what every rank held before and after each step of a ring, and what was sent.

    Steps are counted from 0. They play one after the other where a front end shows SVG, as
    JupyterLab does in a notebook that it trusts; elsewhere, and for readers who ask for less
    motion, all of them stand beside each other.

    Each step is a table, with a row per rank and a column per chunk. The darker a chunk, the more
    ranks' values are in it, up to the complete sum. A dashed frame is around a chunk that was sent
    in this step, a solid one around the chunk that arrived, and an arrow leads from one to the
    other.

    Parameters
    ----------
    states
        One entry per rank, in rank order, as ``lab["states"]`` returns them: the rank's tensor
        before the first step and after each step, cut evenly into as many chunks as there are
        ranks; or, for each state, a list of these chunks. 2 to 8 ranks.
    messages
        What was sent in these steps, as ``lab.messages()`` returns it: (sender, receiver, …), in
        each rank's own order, equally many per step. Arrows are these and no others.
    phases
        Names of the phases, such as ``("reduce-scatter", "all-gather")``, each with its share of
        the steps and a row of its own.
    title
        What the strip shows; the film has the names of the steps in that place.

    Examples
    --------
    Two ranks that hold 1, 2 and 10, 20 need two steps:

    >>> states = [[[1, 2], [1, 22], [11, 22]], [[10, 20], [11, 20], [11, 22]]]
    >>> picture = labkit.figures.ring_strip(states, [(0, 1), (1, 0), (0, 1), (1, 0)])
    >>> print(picture.text.partition("\\nA row")[0])
    before: [1 2], [10 20]
    step 0: chunk 0 from rank 0 to 1, chunk 1 from rank 1 to 0; sums of 2 of 2
    step 1: chunk 1 from rank 0 to 1, chunk 0 from rank 1 to 0; sums of 2 of 2
    complete on ranks 0–1: chunks 0, 1
    """
    n = len(states)
    if not FEWEST <= n <= MOST:
        raise UsageError(f"a picture shows a ring of {FEWEST} to {MOST} ranks, not {n}")
    found = follow_chunks(states, messages)
    rows = _rows(len(found) - 1, phases)
    from_0 = [(phase, [k - 1 for k in own]) for phase, own in rows]
    strip = _Strip(found, rows, in_phases(from_0), title)
    strip.draw()
    told = f"{title}\n" * bool(title) + _describe(found, rows)
    film = write_film(found, from_0, _shade, f"{told}\n{HOW_TO_READ}")
    return Picture(strip.sheet.figure, told, HOW_TO_READ, film=film)


def _rows(count: int, phases: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return name and steps of each row of tables."""
    if phases and count % len(phases):
        raise UsageError(f"{count} steps cannot be {len(phases)} phases of equal length")
    share = count // len(phases) if phases else count
    rows = []
    for i, name in enumerate(phases or [""]):
        own = list(range(i * share + 1, (i + 1) * share + 1))
        for j in range(0, len(own), COLUMNS - 1):
            rows.append((name, own[j : j + COLUMNS - 1]))
    return rows


def _describe(found: list[Step], rows: list[tuple[str, list[int]]]) -> str:
    """Return what arrived where in each step."""
    n = len(found[0].values)
    lines = ["before: " + ", ".join(f"[{' '.join(row)}]" for row in found[0].values)]
    for phase, own in rows:
        for k in own:
            lines.append(f"{phase + ', ' if phase else ''}step {k - 1}: {_what(found[k], n)}")
    complete = {
        rank: tuple(c for c, part in enumerate(row) if part and len(part) == n)
        for rank, row in enumerate(found[-1].parts)
    }
    for ranks, chunks in fold(complete):
        listed = f"chunk{'s' * (len(chunks) > 1)} {', '.join(map(str, chunks))}"
        lines.append(f"complete on {label(ranks)}: {listed if chunks else 'no chunk'}")
    return "\n".join(lines)


def _what(step: Step, n: int) -> str:
    """Return what a step did."""
    came = sorted((source, rank, chunk) for (rank, chunk), source in step.arrived.items())
    said = [
        f"chunk {chunk} from rank {source} to {rank}" if source >= 0 else
        f"chunk {chunk} changed on rank {rank}"
        for source, rank, chunk in came
    ]  # fmt: skip
    moved = {(source, rank) for source, rank, _ in came}
    said += [
        f"from rank {sender} to {receiver}, where nothing changed"
        for sender, receiver in step.messages
        if (sender, receiver) not in moved
    ]
    sizes = {_size(step.parts[rank][chunk], n) for rank, chunk in step.arrived}
    return (", ".join(said) or "no message") + (f"; {', '.join(sorted(sizes))}" if sizes else "")


def _size(parts: Parts, n: int) -> str:
    return "not a sum of the ranks' chunks" if parts is None else f"sums of {len(parts)} of {n}"


def _shade(parts: Parts, n: int) -> str:
    """Return the colour of a chunk."""
    from matplotlib.colors import to_hex, to_rgb

    if parts is None:
        return STRANGE
    share = 0.12 + 0.88 * (len(parts) - 1) / (n - 1)
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(COMPLETE))
    return to_hex((red, green, blue))


class _Strip:
    """The tables of some steps, in rows."""

    def __init__(
        self,
        found: list[Step],
        rows: list[tuple[str, list[int]]],
        phases: Mapping[int, str],
        title: str,
    ) -> None:
        self.found, self.rows, self.phases, self.title = found, rows, phases, title
        self.n = n = len(found[0].values)
        columns = 1 + max(len(steps) for _, steps in rows)
        room = WIDTH - NAMES - GAP * (columns - 1)
        self.cell = min(WIDEST, room / (columns * n))
        self.pitch = n * self.cell + GAP
        texts = [text for step in found for row in step.values for text in row]
        widest = [size for size in SIZES if self._fits(texts, size)]
        self.size = widest[0] if widest else 0.0
        self.table = n * (HIGH + ROW_GAP)
        #: How high a row is beside the name of its phase.
        self.row = HEAD + self.table + FOOT
        top = TITLE if title else 0.0
        self.tops = []
        last = ""
        for phase, _ in rows:
            top += PHASE if phase and phase != last else 0.0
            self.tops.append(top)
            top, last = top + self.row, phase
        width = NAMES + columns * self.pitch - GAP
        self.sheet = Sheet(max(width, LEGEND_WIDTH), top + LEGEND)
        self.bottom = top + LEGEND / 2

    def _fits(self, texts: list[str], size: float) -> bool:
        return all(text_width(text, size) < self.cell - 0.06 for text in texts)

    def draw(self) -> None:
        """Draw everything."""
        self.sheet.words((0, 0.08), self.title, ha="left", weight="bold", size=TITLE_SIZE)
        for i, (top, (phase, steps)) in enumerate(zip(self.tops, self.rows, strict=True)):
            if phase and (i == 0 or self.rows[i - 1][0] != phase):
                self.sheet.words((0, top - 0.12), phase, weight="bold", ha="left")
            for rank in range(self.n):
                self.sheet.words((NAMES - 0.1, self._middle(top, rank)), f"rank {rank}",
                                 colour=ink_of(rank_colour(rank)), weight="bold",
                                 ha="right")  # fmt: skip
            for column, k in enumerate([steps[0] - 1, *steps]):
                left = NAMES + column * self.pitch
                self._draw_table(left, top, k, moves=column > 0)
        self._legend()

    def _middle(self, top: float, rank: int) -> float:
        return top + HEAD + rank * (HIGH + ROW_GAP) + HIGH / 2

    def _draw_table(self, left: float, top: float, k: int, *, moves: bool) -> None:
        """Draw the chunks after step ``k``, with what moved in it."""
        step = self.found[k]
        name = self._name(k - 1) if moves else f"after step {k - 1}" if k else "before"
        self.sheet.words((left + self.n * self.cell / 2, top + 0.08), name, size=NOTE_SIZE,
                         style="italic", colour=SOFT_INK)  # fmt: skip
        for chunk in range(self.n):
            self.sheet.words((left + (chunk + 0.5) * self.cell, top + 0.26), str(chunk), size=8,
                             colour=SOFT_INK)  # fmt: skip
        sent = {(step.arrived[r, c], c) for r, c in step.arrived} if moves else set()
        for rank in range(self.n):
            for chunk in range(self.n):
                self._draw_cell(left, top, rank, chunk, step)
                if moves and (rank, chunk) in step.arrived:
                    self._frame(left, top, rank, chunk, dashed=False)
                elif (rank, chunk) in sent:
                    self._frame(left, top, rank, chunk, dashed=True)
        for (rank, chunk), source in step.arrived.items() if moves else ():
            if source >= 0:
                self._draw_arrow(left, top, source, rank, chunk)

    def _name(self, step: int) -> str:
        """Return what a step is called above its table, next to the name of its phase."""
        own = self.phases[step]
        return f"step {step} ({own})" if " step " in own else f"step {step}"

    def _draw_cell(self, left: float, top: float, rank: int, chunk: int, step: Step) -> None:
        colour = _shade(step.parts[rank][chunk], self.n)
        x, y = left + chunk * self.cell, self._middle(top, rank)
        inset = FRAME + 0.01
        self.sheet.box((x + inset, y - HIGH / 2 + inset), self.cell - 2 * inset,
                       HIGH - 2 * inset, colour, edge=EDGE, thick=0.5)  # fmt: skip
        if self.size:
            self.sheet.words((x + self.cell / 2, y), step.values[rank][chunk], on=colour,
                             size=self.size, weight="bold", va="center_baseline")  # fmt: skip

    def _frame(self, left: float, top: float, rank: int, chunk: int, *, dashed: bool) -> None:
        x, y = left + chunk * self.cell, self._middle(top, rank)
        self.sheet.box((x + 0.01, y - HIGH / 2 + 0.01), self.cell - 0.02, HIGH - 0.02, "none",
                       edge=INK, dashed=dashed, thick=1.4, above=4)  # fmt: skip

    def _draw_arrow(self, left: float, top: float, source: int, rank: int, chunk: int) -> None:
        x = left + (chunk + 0.5) * self.cell
        down, colour = HIGH / 2 + 0.01, rank_colour(source)
        low, high = self._middle(top, source) + down, self._middle(top, rank) - down
        if rank == source + 1:
            self.sheet.arrow((x, low), (x, high), colour, thick=1.6)
        elif (source, rank) == (self.n - 1, 0):  # out below, in from above
            self.sheet.arrow((x, low), (x, low + ROW_GAP - 0.02), colour, thick=1.6)
            self.sheet.arrow((x, high - ROW_GAP + 0.06), (x, high), colour, thick=1.6)
        else:
            edge = left + (chunk + 1) * self.cell - 0.04
            up = rank < source
            self.sheet.arrow((edge, self._middle(top, source)), (edge, self._middle(top, rank)),
                             colour, bend=0.35 if up else -0.35, thick=1.6, above=5)  # fmt: skip

    def _legend(self) -> None:
        """Report what shades and frames mean."""
        side, y = 0.21, self.bottom
        for k in range(1, self.n + 1):
            colour = _shade(frozenset(range(k)), self.n)
            self.sheet.box(((k - 1) * side, y - side / 2), side, side, colour, edge=EDGE, thick=0.5)
            self.sheet.words(((k - 0.5) * side, y), str(k), on=colour, size=8, weight="bold",
                             va="center_baseline")  # fmt: skip
        x = self.n * side + 0.08
        self.sheet.words((x, y), "ranks' values in a chunk", size=NOTE_SIZE, ha="left")
        x += 1.75
        for word, dashed in (("sent", True), ("arrived", False)):
            self.sheet.box((x, y - side / 2), side * 1.4, side, "none", edge=INK, dashed=dashed,
                           thick=1.4)  # fmt: skip
            self.sheet.words((x + side * 1.4 + 0.07, y), word, size=NOTE_SIZE, ha="left")
            x += 0.95
        if any(part is None for step in self.found for row in step.parts for part in row):
            self.sheet.box((x, y - side / 2), side, side, STRANGE, edge=EDGE, thick=0.5)
            self.sheet.words((x + side + 0.07, y), "no such sum", size=NOTE_SIZE, ha="left")
