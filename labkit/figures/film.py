"""Write a ring all-reduce as an SVG that plays: one frame per step, in plain CSS without a script.

It stands still as a strip of all steps where nothing plays: for readers who ask their system for
less motion, in programs that draw SVG without CSS animations, and after ``ROUNDS`` rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from ..base.rank_names import rank_colour
from .chunks import Cell, Step
from .style import CARD, CARD_EDGE, INK, LINE, SOFT_INK, ink_of, text_on

#: Seconds per step, and how often all steps are played: three minutes of a ring of four.
STEP_SECONDS, ROUNDS = 2.6, 12
#: Shares of a step after which a message leaves and arrives.
LEAVES, ARRIVES = 0.22, 0.58
#: Pixels: the picture's width, its margin, ranks' names, and a cell, with what is between two rows.
WIDTH, MARGIN, NAMES, HIGH, BETWEEN = 720, 18, 104, 40, 26
#: Pixels above a table (title and chunk numbers) and below it (the steps; the legend).
HEAD, STEPS, LEGEND = 78, 66, 36
#: How many tables of the strip stand beside each other, and the pixels between two.
COLUMNS, GAP = 3, 20
#: How words are set; inherited, because a rule of a style sheet does not reach into a ``<use>``.
FONT = (
    'font-family="system-ui, DejaVu Sans, sans-serif" font-size="15" font-weight="600" '
    'text-anchor="middle" dominant-baseline="central"'
)
#: Font sizes in the film, in the strip before it is made smaller, and of a step's name there; a
#: character's width in ems.
PLAYING, STANDING, NAMED, WIDE = 16, 29, 38, 0.65
#: Seen while the film is not: what the strip shows is there without CSS.
RULES = """
.ring .frame {{ opacity: 0; animation: frame {cycle}s step-end {rounds}; }}
.ring .go {{ animation: go {cycle}s ease-in-out {rounds}; }}
.ring .after {{ opacity: 0; animation: after {cycle}s step-end {rounds}; }}
.ring .strip {{ animation: rest {whole}s step-end; }}
@keyframes frame {{ 0% {{ opacity: 1; }} {end}% {{ opacity: 0; }} 100% {{ opacity: 0; }} }}
@keyframes go {{ 0%, {leaves}% {{ transform: none; }}
  {arrives}%, 100% {{ transform: translateY(var(--way)); }} }}
@keyframes after {{ 0% {{ opacity: 0; }} {arrives}% {{ opacity: 1; }} 100% {{ opacity: 1; }} }}
@keyframes rest {{ 0%, 100% {{ opacity: 0; }} }}
@media (prefers-reduced-motion: reduce) {{
  .ring .film {{ display: none; }}
  .ring .strip {{ animation: none; }}
}}
"""


def write_film(
    found: Sequence[Step],
    rows: Sequence[tuple[str, Sequence[int]]],
    shade: Callable[[frozenset[int] | None, int], str],
    told: str,
) -> str:
    """Return the SVG.

    Parameters
    ----------
    found
        The chunks before the first step and after each.
    rows
        The name and the steps of each phase, counted from 0.
    shade
        The colour of a chunk, by whose parts it has and the number of ranks.
    told
        The same in words, for screen readers.
    """
    return _Film(found, rows, shade).write(told)


def in_phases(rows: Sequence[tuple[str, Sequence[int]]]) -> dict[int, str]:
    """Return what each step is in its phase: after the first one by its number there.

    >>> in_phases([("add", [0, 1]), ("share", [2, 3])])
    {0: 'add', 1: 'add', 2: 'share step 0', 3: 'share step 1'}
    """
    first: dict[str, int] = {}  # step 0 is that of the first phase
    return {
        k: f"{phase} step {k - first[phase]}" if phase and first.setdefault(phase, k) else phase
        for phase, steps in rows
        for k in steps
    }


class _Film:
    """The parts of the SVG; all places are in pixels."""

    def __init__(
        self,
        found: Sequence[Step],
        rows: Sequence[tuple[str, Sequence[int]]],
        shade: Callable[[frozenset[int] | None, int], str],
    ) -> None:
        self.found, self.shade = found, shade
        self.n, self.count = len(found[0].values), len(found) - 1
        self.phases = in_phases(rows)
        self.cell = (WIDTH - 2 * MARGIN - NAMES) / self.n
        self.table = self.n * HIGH + (self.n - 1) * BETWEEN
        #: Scale of a table in the strip, and the height of one with its title.
        self.scale = (WIDTH - 2 * MARGIN - GAP * (COLUMNS - 1)) / COLUMNS / (WIDTH - 2 * MARGIN)
        self.small = self.scale * (HEAD + self.table) + GAP
        lines = -(-self.count // COLUMNS)
        self.height = max(HEAD + self.table + STEPS, lines * self.small + GAP) + LEGEND
        self.line = (self.height - LEGEND - GAP) / lines
        texts = [text for step in found for row in step.values for text in row]
        #: The largest font that the longest value allows.
        self.most = (self.cell - 12) / (WIDE * max(map(len, texts)))

    def write(self, told: str) -> str:
        cycle = self.count * STEP_SECONDS
        share = 100 / self.count
        rules = RULES.format(
            cycle=f"{cycle:g}", rounds=ROUNDS, whole=f"{cycle * ROUNDS:g}", end=f"{share:.3f}",
            leaves=f"{share * LEAVES:.3f}", arrives=f"{share * ARRIVES:.3f}",
        )  # fmt: skip
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:.0f}" '
            f'width="{WIDTH}" height="{self.height:.0f}" style="max-width:100%;height:auto" '
            f'class="ring" role="img" {FONT} '
            f'aria-label="{escape(told)}">',
            f"<style>{rules}</style>",
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{self.height - 1:.0f}" rx="8" '
            f'fill="{CARD}" stroke="{CARD_EDGE}"/>',
            "<defs>",
            *(self._table(k) for k in range(self.count + 1)),
            *(self._moves(k) for k in range(self.count)),
            "</defs>",
            f'<g class="strip">{"".join(map(self._still, range(self.count)))}</g>',
            f'<g class="film">{"".join(map(self._frame, range(self.count)))}</g>',
            self._legend(),
            "</svg>",
        ]
        return "\n".join(parts)

    def _place(self, cell: Cell) -> tuple[float, float]:
        """Return the left upper corner of a rank's chunk."""
        rank, chunk = cell
        return NAMES + chunk * self.cell, HEAD + rank * (HIGH + BETWEEN)

    def _box(self, cell: Cell, fill: str, look: str = "") -> str:
        x, y = self._place(cell)
        return (
            f'<rect x="{x + 3:.1f}" y="{y:.0f}" width="{self.cell - 6:.1f}" height="{HIGH}" '
            f'rx="4" fill="{fill}" {look}/>'
        )

    def _words(
        self, x: float, y: float, text: str, colour: str = INK, look: str = ""
    ) -> str:  # fmt: skip
        return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" {look}>{escape(text)}</text>'

    def _chunk(self, cell: Cell, step: Step, look: str = "") -> str:
        """Draw a chunk with its value."""
        rank, chunk = cell
        colour = self.shade(step.parts[rank][chunk], self.n)
        x, y = self._place(cell)
        look = look or f'stroke="{LINE}" stroke-width="0.7"'
        return self._box(cell, colour, look) + self._words(
            x + self.cell / 2, y + HIGH / 2, step.values[rank][chunk], text_on(colour)
        )

    def _table(self, k: int) -> str:
        """Define all chunks as they are before step k."""
        step = self.found[k]
        cells = [(rank, chunk) for rank in range(self.n) for chunk in range(self.n)]
        names = [
            self._words(NAMES / 2 - 4, self._place((rank, 0))[1] + HIGH / 2, f"rank {rank}",
                        ink_of(rank_colour(rank)))
            for rank in range(self.n)
        ]  # fmt: skip
        heads = [
            self._words(self._place((0, chunk))[0] + self.cell / 2, HEAD - 30, f"{chunk}",
                        SOFT_INK)
            for chunk in range(self.n)
        ]  # fmt: skip
        heads.append(self._words(NAMES / 2 - 4, HEAD - 30, "chunk", SOFT_INK))
        drawn = "".join([*names, *heads, *(self._chunk(cell, step) for cell in cells)])
        return f'<g id="ring-table-{k}">{drawn}</g>'

    def _moves(self, k: int) -> str:
        """Define the frames around what was sent and arrived in step k, and the arrows."""
        drawn = []
        for (rank, chunk), source in sorted(self.found[k + 1].arrived.items()):
            drawn.append(self._box((rank, chunk), "none", f'stroke="{INK}" stroke-width="2.4"'))
            if source >= 0:
                dashed = f'stroke="{INK}" stroke-width="2.4" stroke-dasharray="5 4"'
                drawn.append(self._box((source, chunk), "none", dashed))
                drawn.append(self._arrows(source, rank, chunk))
        return f'<g id="ring-moves-{k}">{"".join(drawn)}</g>'

    def _arrows(self, source: int, rank: int, chunk: int) -> str:
        """Draw the arrow of a message; one to a rank above leaves below and comes in from above."""
        x, low = self._place((source, chunk))
        high = self._place((rank, chunk))[1]
        x += self.cell / 2
        low += HIGH
        colour = rank_colour(source)
        if rank > source:
            return _arrow(x, low + 2, high - 1, colour)
        return _arrow(x, low + 2, low + BETWEEN - 6, colour) + _arrow(
            x, high - 22, high - 1, colour
        )

    def _still(self, k: int) -> str:
        """Draw step k in the strip."""
        across, down = k % COLUMNS, k // COLUMNS
        x = MARGIN + across * (self.scale * (WIDTH - 2 * MARGIN) + GAP)
        y = GAP / 2 + (down + 0.5) * self.line - self.small / 2
        title = self._words(WIDTH / 2, 14, self._title(k), INK, f'font-size="{NAMED}"')
        return (
            f'<g transform="translate({x:.1f} {y:.1f}) scale({self.scale:.4f})" '
            f'font-size="{min(STANDING, self.most):.1f}">{title}'
            f'<use href="#ring-table-{k + 1}"/><use href="#ring-moves-{k}"/></g>'
        )

    def _title(self, k: int) -> str:
        return f"step {k}: {self.phases[k]}" if self.phases[k] else f"step {k}"

    def _frame(self, k: int) -> str:
        """Draw step k as it plays: the chunks before it, the messages, the chunks after it."""
        late = f"animation-delay: {k * STEP_SECONDS:g}s"
        going = []
        for (rank, chunk), source in sorted(self.found[k + 1].arrived.items()):
            if source < 0:
                continue
            way = self._place((rank, chunk))[1] - self._place((source, chunk))[1]
            edge = f'stroke="{rank_colour(source)}" stroke-width="3"'
            sent = self._chunk((source, chunk), self.found[k], edge)
            going.append(f'<g class="go" style="--way: {way:.0f}px; {late}">{sent}</g>')
        title = self._words(WIDTH / 2, 20, self._title(k), INK, 'font-size="18"')
        return (
            f'<g class="frame" style="{late}">{title}{self._progress(k)}'
            f'<g transform="translate({MARGIN} 0)" font-size="{min(PLAYING, self.most):.1f}">'
            f'<use href="#ring-table-{k}"/>{"".join(going)}'
            f'<g class="after" style="{late}"><use href="#ring-table-{k + 1}"/>'
            f'<use href="#ring-moves-{k}"/></g></g></g>'
        )

    def _progress(self, now: int) -> str:
        """Draw all steps as dots, with the one that plays."""
        y, apart = HEAD + self.table + STEPS - 26, 34  # below the arrows from the last rank
        left = WIDTH / 2 - apart * (self.count - 1) / 2
        drawn = []
        for k in range(self.count):
            x, mine = left + k * apart, k == now
            drawn.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="12" '
                         f'fill="{INK if mine else CARD}" stroke="{LINE}"/>')  # fmt: skip
            drawn.append(self._words(x, y, f"{k}", CARD if mine else INK))
        return "".join(drawn)

    def _legend(self) -> str:
        """Explain the shades and the frames."""
        side, y = 24, self.height - LEGEND / 2 - 4
        x = float(MARGIN)
        drawn = []
        for k in range(1, self.n + 1):
            colour = self.shade(frozenset(range(k)), self.n)
            drawn.append(f'<rect x="{x:.0f}" y="{y - side / 2:.0f}" width="{side}" '
                         f'height="{side}" fill="{colour}" stroke="{LINE}"/>')  # fmt: skip
            drawn.append(self._words(x + side / 2, y, f"{k}", text_on(colour)))
            x += side
        for text, dashes in (
            ("ranks’ values in a chunk", None),
            ("sent", "5 4"),
            ("arrived", "none"),
        ):
            if dashes is not None:
                drawn.append(f'<rect x="{x:.0f}" y="{y - 10:.0f}" width="34" height="20" rx="4" '
                             f'fill="none" stroke="{INK}" stroke-width="2.4" '
                             f'stroke-dasharray="{dashes}"/>')  # fmt: skip
                x += 34
            look = 'font-weight="400" style="text-anchor: start"'
            drawn.append(self._words(x + 8, y, text, INK, look))
            x += 26 + 7.6 * len(text)
        return "".join(drawn)


def _arrow(x: float, tail: float, tip: float, colour: str) -> str:
    """Draw an arrow down."""
    return (
        f'<path d="M{x:.1f} {tail:.1f}V{tip - 8:.1f}" stroke="{colour}" stroke-width="3"/>'
        f'<path d="M{x - 6:.1f} {tip - 9:.1f}h12L{x:.1f} {tip:.1f}z" fill="{colour}"/>'
    )
