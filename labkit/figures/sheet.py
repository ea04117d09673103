"""Draw boxes, words and arrows by hand, in inches from a figure's left upper corner."""

from __future__ import annotations

from typing import Any

from .style import INK, LABEL_SIZE, LINE, new_figure, text_on

#: A place: inches to the right, inches down.
Point = tuple[float, float]
#: Radius of a box's corners in inches.
ROUND = 0.06


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
